/* Queries in real-time mode, from 4.3 on. Their source is in memory, so a query restarts in the process that it began in. */
package judge

import java.time.Duration
import java.util.concurrent.ConcurrentLinkedQueue

import scala.collection.concurrent.TrieMap
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{Encoders, ForeachWriter, Row, SparkSession}
import org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming._

/** A count and a sum for each key. The map and its index have a TTL, so that derived states are rewritten, too. */
class Visits extends StatefulProcessor[String, RealTime.Event, (String, Long, Long)] {
  @transient private var last: ValueState[RealTime.Seen] = _
  @transient private var days: MapState[String, Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    last = getHandle.getValueState("last", Encoders.product[RealTime.Seen], TTLConfig.NONE)
    days = getHandle.getMapState("days", Encoders.STRING, Encoders.scalaLong, TTLConfig(Duration.ofDays(1)))
  }

  override def handleInputRows(
      key: String, events: Iterator[RealTime.Event], timers: TimerValues): Iterator[(String, Long, Long)] =
    events.map { event =>
      val before = if (last.exists()) last.get() else RealTime.Seen(0, 0, 0)
      val now = RealTime.Seen(before.seen.max(event.ts), before.n + 1, before.total + event.value)
      last.update(now)
      days.updateValue((event.ts / 86400).toString, now.n)
      (key, now.n, now.total)
    }
}

object RealTime {
  case class Event(key: String, ts: Long, value: Long)
  case class Seen(seen: Long, n: Long, total: Long)

  private val stateStore = "org.apache.spark.sql.execution.streaming.state"
  private val sessions = TrieMap[String, SparkSession]()
  private val sources = TrieMap[String, LowLatencyMemoryStream[Event]]()
  private val emitted = TrieMap[String, ConcurrentLinkedQueue[String]]()
  private val queries = TrieMap[String, StreamingQuery]()

  /** Start or restart a query on its checkpoint: with batches of `batchMs`, or with ordinary micro-batches if that is 0. */
  def start(
      root: SparkSession, checkpoint: String, operator: String, batchMs: Long, checkpointFormat: Int, provider: String): Unit = {
    // A query runs in the session of its source.
    val spark = sessions.getOrElseUpdate(checkpoint, root.newSession())
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1s")
    // Real-time mode chooses RocksDB by itself.
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", s"$stateStore.${provider}StateStoreProvider")
    if (checkpointFormat == 1 && batchMs > 0) {
      spark.conf.set("spark.sql.streaming.realTimeMode.dangerouslyAllowCheckpointV1.enabled", "true")
      spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    }
    spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", checkpointFormat.toString)
    val source = sources.getOrElseUpdate(checkpoint, LowLatencyMemoryStream[Event](spark, 1)(Encoders.product[Event]))
    emitted.getOrElseUpdate(checkpoint, new ConcurrentLinkedQueue[String]())
    val events = source.toDF().withColumn("at", timestamp_seconds(col("ts")))
    val result = operator match {
      case "agg" => events.groupBy("key").agg(count(lit(1)), sum("value"), max("at"))
      case "visits" =>
        source.toDS().groupByKey(_.key)(Encoders.STRING)
          .transformWithState(new Visits, TimeMode.ProcessingTime(), OutputMode.Update())(
            Encoders.tuple(Encoders.STRING, Encoders.scalaLong, Encoders.scalaLong))
          .toDF()
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
