/* groups_scala in Scala (see queries.py): the state has the encoder of a case class, its key that of a single value. */
package judge

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.streaming._

object Groups {
  case class Event(key: String, ts: Long, value: Long)
  case class Seen(seen: Long, n: Long)
  case class Told(key: String, seen: Long, n: Long)

  private def step(key: String, events: Iterator[Event], state: GroupState[Seen], windowMs: Long): Iterator[Told] = {
    if (state.hasTimedOut) {
      val Seen(seen, n) = state.get
      state.remove()
      Iterator(Told(key, seen, -n))
    } else {
      var Seen(seen, n) = state.getOption.getOrElse(Seen(0, 0))
      for (event <- events) {
        seen = seen.max(event.ts)
        n += 1
      }
      state.update(Seen(seen, n))
      if (windowMs > 0) state.setTimeoutTimestamp((seen * 1000 + windowMs).max(state.getCurrentWatermarkMs() + 1))
      Iterator(Told(key, seen, n))
    }
  }

  /** With a timeout `windowMs` after the last event, in event time, or with 0 without one. */
  def of(events: DataFrame, windowMs: Long): DataFrame = {
    val timeout = if (windowMs > 0) GroupStateTimeout.EventTimeTimeout() else GroupStateTimeout.NoTimeout()
    events
      .as(Encoders.product[Event])
      .groupByKey(_.key)(Encoders.STRING)
      .flatMapGroupsWithState(OutputMode.Update(), timeout) { (key: String, rows: Iterator[Event], state: GroupState[Seen]) =>
        step(key, rows, state, windowMs)
      }(Encoders.product[Seen], Encoders.product[Told])
      .toDF()
  }
}
