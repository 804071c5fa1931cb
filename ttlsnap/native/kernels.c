/* Loops over the bytes of a whole batch. See __init__.py for the functions and for the array code that they replace.
 *
 * The caller has checked that every piece lies within its buffer. Positions and sizes are in bytes. Nothing here allocates
 * memory, calls Python or keeps state, so any number of threads can run it.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Spark's rows are little-endian here; on another machine ttlsnap uses its array code"
#endif

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/* How find_records ended: it needs more bytes, found the end mark, or found a length that no record has. */
enum { MORE, ENDED, IMPOSSIBLE };

static int32_t read_big_endian(const uint8_t *at) {
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static uint64_t read_word(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Finds the whole records of a state file (see ttlsnap/stores/hdfs/records.py) from the first byte of data on, and
 * returns their number. The arrays have room for size / 8 records. used is the position after the last one. */
int64_t find_records(const uint8_t *data, int64_t size, int64_t *start, int64_t *key_size, int64_t *value_size,
                     int64_t *used, int32_t *state) {
    int64_t at = 0, found = 0;
    *state = MORE;
    while (size - at >= 4) {
        int64_t key = read_big_endian(data + at), value_at = at + 4 + key, value, after;
        if (key == -1) {
            *state = ENDED;
            break;
        }
        if (key < 0 || key & 3) {
            *state = IMPOSSIBLE;
            break;
        }
        if (size - value_at < 4) break;
        value = read_big_endian(data + value_at);
        if (value < -1 || (value > 0 && value & 3)) {
            *state = IMPOSSIBLE;
            break;
        }
        after = value_at + 4 + (value > 0 ? value : 0);
        if (after > size) break;
        start[found] = at;
        key_size[found] = key;
        value_size[found] = value;
        found++;
        at = after;
    }
    *used = at;
    return found;
}

/* Copies pieces of data to target, one after the other. */
void gather(const uint8_t *data, const int64_t *start, const int64_t *size, int64_t count, uint8_t *target) {
    for (int64_t i = 0; i < count; i++) {
        memcpy(target, data + start[i], (size_t)size[i]);
        target += size[i];
    }
}

/* Computes a hash of the size and the whole words of each piece. */
void hash_pieces(const uint8_t *data, const int64_t *start, const int64_t *size, int64_t count, uint64_t *hashes) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *at = data + start[i];
        uint64_t hash = (uint64_t)size[i];
        for (int64_t words = size[i] >> 3; words > 0; words--, at += 8) {
            hash = (hash ^ read_word(at)) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 32;
        }
        hashes[i] = hash;
    }
}

/* Fills tables with what a byte adds to a CRC32C: tables[n] for a byte that n more bytes follow in its word. */
static void fill_tables(uint32_t tables[8][256]) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
        tables[0][byte] = crc;
    }
    for (int after = 1; after < 8; after++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = tables[after - 1][byte];
            tables[after][byte] = tables[0][crc & 0xFF] ^ crc >> 8;
        }
}

static uint32_t extend_by_tables(uint32_t crc, const uint8_t *at, int64_t size, uint32_t tables[8][256]) {
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word = read_word(at) ^ crc;
        crc = 0;
        for (int byte = 0; byte < 8; byte++) crc ^= tables[7 - byte][word >> 8 * byte & 0xFF];
    }
    for (; size > 0; size--) crc = tables[0][(crc ^ *at++) & 0xFF] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t extend_by_instruction(uint32_t crc, const uint8_t *at, int64_t size) {
    uint64_t wide = crc;
    for (; size >= 8; size -= 8, at += 8) wide = _mm_crc32_u64(wide, read_word(at));
    crc = (uint32_t)wide;
    for (; size > 0; size--) crc = _mm_crc32_u8(crc, *at++);
    return crc;
}
#endif

/* Computes the CRC32C of each first piece and the second piece after it. with_tables avoids the processor's instruction. */
void join_checksums(const uint8_t *first, const int64_t *first_start, const int64_t *first_size, const uint8_t *second,
                    const int64_t *second_start, const int64_t *second_size, int64_t count, int32_t with_tables,
                    uint32_t *sums) {
    uint32_t tables[8][256];
#if defined(__x86_64__)
    if (!with_tables && __builtin_cpu_supports("sse4.2")) {
        for (int64_t i = 0; i < count; i++) {
            uint32_t crc = extend_by_instruction(0xFFFFFFFF, first + first_start[i], first_size[i]);
            sums[i] = ~extend_by_instruction(crc, second + second_start[i], second_size[i]);
        }
        return;
    }
#endif
    (void)with_tables;
    fill_tables(tables);
    for (int64_t i = 0; i < count; i++) {
        uint32_t crc = extend_by_tables(0xFFFFFFFF, first + first_start[i], first_size[i], tables);
        sums[i] = ~extend_by_tables(crc, second + second_start[i], second_size[i], tables);
    }
}

/* Functions of RocksDB's C interface. */
struct iterator_calls {
    unsigned char (*is_valid)(const void *iterator);
    void (*next)(void *iterator);
    const char *(*key)(const void *iterator, size_t *size);
    const char *(*value)(const void *iterator, size_t *size);
};
typedef void (*put_call)(void *writer, const char *key, size_t key_size, const char *value, size_t value_size,
                         char **error);

/* Copies the next entries of a RocksDB iterator into data, and returns their number: most or fewer, and those that fit
 * into room. If not even one fits, needed is its size. */
int64_t read_entries(void *iterator, const struct iterator_calls *calls, uint8_t *data, int64_t room, int64_t most,
                     int64_t *key_start, int64_t *key_size, int64_t *value_start, int64_t *value_size,
                     int64_t *needed) {
    int64_t at = 0, found = 0;
    *needed = 0;
    while (found < most && calls->is_valid(iterator)) {
        size_t key, value;
        const char *key_bytes = calls->key(iterator, &key), *value_bytes = calls->value(iterator, &value);
        if ((int64_t)(key + value) > room - at) {
            if (!found) *needed = (int64_t)(key + value);
            break;
        }
        memcpy(data + at, key_bytes, key);
        key_start[found] = at;
        key_size[found] = (int64_t)key;
        at += (int64_t)key;
        memcpy(data + at, value_bytes, value);
        value_start[found] = at;
        value_size[found] = (int64_t)value;
        at += (int64_t)value;
        found++;
        calls->next(iterator);
    }
    return found;
}

/* Puts entries into a RocksDB table, and returns their number: fewer than count if RocksDB sets an error. */
int64_t put_entries(void *writer, put_call put, const uint8_t *keys, const int64_t *key_start, const int64_t *key_size,
                    const uint8_t *values, const int64_t *value_start, const int64_t *value_size, int64_t count,
                    char **error) {
    for (int64_t i = 0; i < count; i++) {
        put(writer, (const char *)keys + key_start[i], (size_t)key_size[i], (const char *)values + value_start[i],
            (size_t)value_size[i], error);
        if (*error) return i;
    }
    return count;
}
