/* The baseline for ttlsnap's work on a partition: librocksdb's own iterator and SstFileWriter, through its C interface.
 * It reads every entry of a database, and writes every second one into a new table with the same options.
 *
 *     limit DATABASE TABLE FORMAT_VERSION
 *
 * Built by rocksdb_work.py, with gcc, against the library in the jar that PySpark brings. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void *Handle;
extern Handle rocksdb_options_create(void);
extern Handle rocksdb_block_based_options_create(void);
extern void rocksdb_block_based_options_set_format_version(Handle, int);
extern void rocksdb_block_based_options_set_filter_policy(Handle, Handle);
extern Handle rocksdb_filterpolicy_create_bloom_full(double);
extern void rocksdb_options_set_block_based_table_factory(Handle, Handle);
extern void rocksdb_options_set_compression(Handle, int);
extern Handle rocksdb_open_for_read_only(Handle, const char *, unsigned char, char **);
extern Handle rocksdb_readoptions_create(void);
extern void rocksdb_readoptions_set_fill_cache(Handle, unsigned char);
extern Handle rocksdb_create_iterator(Handle, Handle);
extern void rocksdb_iter_seek_to_first(Handle);
extern unsigned char rocksdb_iter_valid(Handle);
extern void rocksdb_iter_next(Handle);
extern const char *rocksdb_iter_key(Handle, size_t *);
extern const char *rocksdb_iter_value(Handle, size_t *);
extern Handle rocksdb_envoptions_create(void);
extern Handle rocksdb_sstfilewriter_create(Handle, Handle);
extern void rocksdb_sstfilewriter_open(Handle, const char *, char **);
extern void rocksdb_sstfilewriter_put(Handle, const char *, size_t, const char *, size_t, char **);
extern void rocksdb_sstfilewriter_finish(Handle, char **);

int main(int count, char **arguments) {
    enum { LZ4 = 4 };
    char *error = NULL;
    Handle options = rocksdb_options_create(), table = rocksdb_block_based_options_create();
    if (count != 4) return 2;
    rocksdb_block_based_options_set_format_version(table, atoi(arguments[3]));
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_options_set_compression(options, LZ4);
    clock_t start = clock();
    Handle database = rocksdb_open_for_read_only(options, arguments[1], 0, &error);
    if (error != NULL) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    Handle reading = rocksdb_readoptions_create();
    rocksdb_readoptions_set_fill_cache(reading, 0);
    Handle iterator = rocksdb_create_iterator(database, reading);
    Handle writer = rocksdb_sstfilewriter_create(rocksdb_envoptions_create(), options);
    rocksdb_sstfilewriter_open(writer, arguments[2], &error);
    long entries = 0;
    for (rocksdb_iter_seek_to_first(iterator); rocksdb_iter_valid(iterator) && error == NULL; rocksdb_iter_next(iterator)) {
        size_t key_size, value_size;
        const char *key = rocksdb_iter_key(iterator, &key_size), *value = rocksdb_iter_value(iterator, &value_size);
        if (entries++ % 2 == 0) rocksdb_sstfilewriter_put(writer, key, key_size, value, value_size, &error);
    }
    rocksdb_sstfilewriter_finish(writer, &error);
    if (error != NULL) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    printf("%ld %.6f\n", entries, (double)(clock() - start) / CLOCKS_PER_SEC);
    return 0;
}
