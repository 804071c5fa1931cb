/* for_a_day in Scala (see queries.py): its keys and values have the encoders of case classes and of single values. */
package judge

import java.time.Duration

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.streaming._

case class Event(key: String, ts: Long, value: Long)
case class Last(seen: Long, n: Long)
case class Told(key: String, seen: Long, n: Long, digits: String, always: String)

class Counts extends StatefulProcessor[String, Event, Told] {
  @transient private var last: ValueState[Last] = _
  @transient private var digits: MapState[String, Long] = _
  @transient private var always: MapState[String, Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    val day = TTLConfig(Duration.ofDays(1))
    last = getHandle.getValueState("last", Encoders.product[Last], day)
    digits = getHandle.getMapState("digits", Encoders.STRING, Encoders.scalaLong, day)
    always = getHandle.getMapState("always", Encoders.STRING, Encoders.scalaLong, TTLConfig.NONE)
  }

  override def handleInputRows(key: String, events: Iterator[Event], timers: TimerValues): Iterator[Told] = {
    var Last(seen, n) = if (last.exists()) last.get() else Last(0, 0)
    for (event <- events) {
      seen = seen.max(event.ts)
      n += 1
      val digit = event.value.toString.takeRight(1)
      for (counts <- Seq(digits, always)) {
        val before = if (counts.containsKey(digit)) counts.getValue(digit) else 0L
        counts.updateValue(digit, before + 1)
      }
    }
    last.update(Last(seen, n))
    Iterator(Told(key, seen, n, told(digits), told(always)))
  }

  private def told(counts: MapState[String, Long]): String =
    counts.iterator().map { case (digit, count) => s"$digit:$count" }.toSeq.sorted.mkString(",")
}

object ForADay {
  def of(events: DataFrame): DataFrame =
    events
      .as(Encoders.product[Event])
      .groupByKey(_.key)(Encoders.STRING)
      .transformWithState(new Counts, TimeMode.ProcessingTime(), OutputMode.Update())(Encoders.product[Told])
      .toDF()
}
