/* Queries in real-time mode, from 4.3 on. Their source is in memory, so a query restarts in the process that it began in. */
package judge

import java.util.concurrent.ConcurrentLinkedQueue

import scala.collection.concurrent.TrieMap
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{Encoders, ForeachWriter, Row, SparkSession}
import org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming._

object RealTime {
  case class Event(key: String, ts: Long, value: Long)

  private val sources = TrieMap[String, LowLatencyMemoryStream[Event]]()
  private val emitted = TrieMap[String, ConcurrentLinkedQueue[String]]()
  private val queries = TrieMap[String, StreamingQuery]()

  /** Start or restart a query on its checkpoint: with batches of `batchMs`, or with ordinary micro-batches if that is 0. */
  def start(root: SparkSession, checkpoint: String, operator: String, batchMs: Long): Unit = {
    val spark = root.newSession()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1s")
    val source = sources.getOrElseUpdate(checkpoint, LowLatencyMemoryStream[Event](spark, 1)(Encoders.product[Event]))
    emitted.getOrElseUpdate(checkpoint, new ConcurrentLinkedQueue[String]())
    val events = source.toDF().withColumn("at", timestamp_seconds(col("ts")))
    val result = operator match {
      case "agg" => events.groupBy("key").agg(count(lit(1)), sum("value"), max("at"))
      case "dedup" => events.dropDuplicates("key", "at").select("key", "value")
    }
    val writer = new ForeachWriter[Row] {
      def open(partition: Long, epoch: Long): Boolean = true
      def process(row: Row): Unit = emitted(checkpoint).add(row.toSeq.take(3).mkString(" "))
      def close(error: Throwable): Unit = ()
    }
    queries(checkpoint) = result.writeStream.outputMode("update").foreach(writer)
      .option("checkpointLocation", checkpoint)
      .trigger(if (batchMs > 0) Trigger.RealTime(batchMs) else Trigger.ProcessingTime(0))
      .start()
  }

  def add(checkpoint: String, key: String, ts: Long, value: Long): Unit =
    sources(checkpoint).addData(Seq(Event(key, ts, value)))

  /** The rows that the query has emitted since it was first started, one in a line. */
  def rows(checkpoint: String): String = emitted(checkpoint).asScala.mkString("\n")

  def stop(checkpoint: String): Unit = queries(checkpoint).stop()

  /** The error that ended the query; empty if it is running. */
  def error(checkpoint: String): String =
    if (queries(checkpoint).isActive) "" else queries(checkpoint).exception.map(_.toString).getOrElse("it was stopped")
}
