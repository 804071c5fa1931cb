/* State store providers with the names of others: a vendor's, and a user's. They write what Spark's own do. */
package org.apache.spark.sql.judge {
  class AsRocksDB extends org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
  class AsHDFSBacked extends org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider
}

package com.databricks.sql.streaming.state {
  class RocksDBStateStoreProvider extends org.apache.spark.sql.judge.AsRocksDB
}

package com.example.state {
  class Provider extends org.apache.spark.sql.judge.AsHDFSBacked
}
