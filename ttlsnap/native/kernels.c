/* Loops over the bytes of a whole batch. See __init__.py and loops.py.
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
/* Clang counts the CRC32 instruction apart from SSE4.2, and older versions of GCC do not know it apart. */
#if defined(__clang__)
#define HAS_CRC32 __attribute__((target("sse4.2,crc32")))
#else
#define HAS_CRC32 __attribute__((target("sse4.2")))
#endif
#endif

/* How find_records ended: it needs more bytes, found the end mark, or found a length that no record has. */
enum { MORE, ENDED, IMPOSSIBLE };

/* Blocks of lz4-java's streams, see ttlsnap/stores/codecs.py. */
enum { HEADER = 21, TOKEN_AT = 8, PACKED_AT = 9, SIZE_AT = 13, CHECK_AT = 17, STORED = 0x10, COMPRESSED = 0x20 };
static const char MAGIC[] = "LZ4Block";
/* lz4-java keeps only 28 bits of the checksum (StreamingXXHash32.asChecksum). */
static const uint32_t SEED = 0x9747B28C, CHECK_MASK = 0x0FFFFFFF;

static int32_t read_big_endian(const uint8_t *at) {
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static uint64_t read_word(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static uint32_t read_half(const uint8_t *at) {
    uint32_t half;
    memcpy(&half, at, sizeof half);
    return half;
}

static void write_half(uint8_t *at, uint32_t half) { memcpy(at, &half, sizeof half); }

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

/* Returns the index of the first piece that does not lie within room bytes, or -1. */
int64_t find_outside(const int64_t *start, const int64_t *size, int64_t count, int64_t room) {
    for (int64_t i = 0; i < count; i++)
        if (start[i] < 0 || size[i] < 0 || size[i] > room || start[i] > room - size[i]) return i;
    return -1;
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

/* Writes whether each piece is one of the keys. Keys are in the order of their hashes. The high bits of a hash, after a
 * shift, number its slot. A slot has the index of the first key with these bits, or -1. */
void find_keys(const uint8_t *data, const int64_t *start, const int64_t *size, const uint64_t *hashes, int64_t count,
               const uint8_t *keys, const int64_t *key_start, const int64_t *key_size, const uint64_t *key_hashes,
               int64_t key_count, const int32_t *slots, int32_t shift, uint8_t *found) {
    for (int64_t i = 0; i < count; i++) {
        int64_t key = slots[hashes[i] >> shift];
        found[i] = 0;
        if (key < 0) continue;
        for (; key < key_count && key_hashes[key] <= hashes[i]; key++)
            if (key_hashes[key] == hashes[i] && key_size[key] == size[i] &&
                !memcmp(keys + key_start[key], data + start[i], (size_t)size[i])) {
                found[i] = 1;
                break;
            }
    }
}

/* Fills tables with what a byte adds to a CRC: tables[n] for a byte that n more bytes follow in its word. The polynomial
 * has its bits reversed. */
static void fill_tables(uint32_t tables[8][256], uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
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
HAS_CRC32 static uint32_t extend_by_instruction(uint32_t crc, const uint8_t *at, int64_t size) {
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
    /* CRC-32C, of Spark's row checksums. */
    fill_tables(tables, 0x82F63B78);
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
        /* RocksDB owns these bytes, and they are gone when the iterator moves. */
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

static uint32_t rotate(uint32_t value, int bits) { return value << bits | value >> (32 - bits); }

static uint32_t mix(uint32_t hash, uint32_t word) {
    hash ^= rotate(word * 0xCC9E2D51u, 15) * 0x1B873593u;
    return rotate(hash, 13) * 5 + 0xE6546B64u;
}

/* Computes Spark's Murmur3 of each piece (see ttlsnap/unsaferow/murmur3.py): its whole words, and each byte that is left
 * as a signed word. */
void murmur3_pieces(const uint8_t *data, const int64_t *start, const int64_t *size, int64_t count,
                    const uint32_t *seeds, uint32_t *hashes) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *at = data + start[i], *end = at + size[i];
        uint32_t hash = seeds[i];
        for (; end - at >= 4; at += 4) hash = mix(hash, read_half(at));
        /* Standard Murmur3 joins these bytes. Spark does not (Murmur3_x86_32.hashUnsafeBytes), and cannot change it. */
        for (; at < end; at++) hash = mix(hash, (uint32_t)(int32_t)(int8_t)*at);
        hash ^= (uint32_t)size[i];
        hash = (hash ^ hash >> 16) * 0x85EBCA6Bu;
        hash = (hash ^ hash >> 13) * 0xC2B2AE35u;
        hashes[i] = hash ^ hash >> 16;
    }
}

/* Computes XXH32, a checksum of blocks. */
static uint32_t xxh32(const uint8_t *at, int64_t size, uint32_t seed) {
    const uint32_t p1 = 2654435761u, p2 = 2246822519u, p3 = 3266489917u, p4 = 668265263u, p5 = 374761393u;
    const uint8_t *end = at + size;
    uint32_t hash = seed + p5;
    if (size >= 16) {
        uint32_t lanes[4] = {seed + p1 + p2, seed + p2, seed, seed - p1};
        for (; end - at >= 16; at += 16)
            for (int lane = 0; lane < 4; lane++)
                lanes[lane] = rotate(lanes[lane] + read_half(at + 4 * lane) * p2, 13) * p1;
        hash = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
    }
    hash += (uint32_t)size;
    for (; end - at >= 4; at += 4) hash = rotate(hash + read_half(at) * p3, 17) * p4;
    for (; at < end; at++) hash = rotate(hash + *at * p5, 11) * p1;
    hash = (hash ^ hash >> 15) * p2;
    hash = (hash ^ hash >> 13) * p3;
    return hash ^ hash >> 16;
}

typedef int (*decompress_call)(const char *source, char *target, int packed, int room);
typedef void (*reset_call)(void *stream);
typedef int (*compress_call)(void *stream, const char *source, char *target, int size, int room, int acceleration);

/* Decompresses whole blocks that have their checksums, as many as fit into target, and returns the bytes written there.
 * It stops before any other block. used is the position after the last one. */
int64_t decompress_blocks(const uint8_t *data, int64_t size, uint8_t *target, int64_t room, decompress_call decompress,
                          int64_t *used) {
    int64_t at = 0, done = 0;
    while (size - at >= HEADER) {
        const uint8_t *header = data + at;
        int method = header[TOKEN_AT] & 0xF0;
        int64_t limit = (int64_t)1 << (10 + (header[TOKEN_AT] & 0x0F));
        int64_t packed = (int32_t)read_half(header + PACKED_AT), whole = (int32_t)read_half(header + SIZE_AT);
        /* The end mark has no bytes. It is left to the caller, like a damaged block. */
        if (memcmp(header, MAGIC, sizeof MAGIC - 1) || packed <= 0 || packed > size - at - HEADER || whole <= 0 ||
            whole > limit || whole > room - done)
            break;
        if (method == STORED && packed == whole)
            memcpy(target + done, header + HEADER, (size_t)whole);
        else if (method != COMPRESSED || decompress((const char *)header + HEADER, (char *)target + done, (int)packed,
                                                    (int)whole) != whole)
            break;
        if ((xxh32(target + done, whole, SEED) & CHECK_MASK) != read_half(header + CHECK_AT)) break;
        at += HEADER + packed;
        done += whole;
    }
    *used = at;
    return done;
}

/* Compresses data as blocks of at most block bytes to target, and returns the bytes written there. level is the token's.
 * A block needs HEADER + bound bytes of room: bound is what LZ4 may write for a block. stream is memory for LZ4. */
int64_t compress_blocks(const uint8_t *data, int64_t size, int64_t block, int64_t bound, int level, uint8_t *target,
                        void *stream, reset_call reset, compress_call compress) {
    int64_t done = 0;
    for (int64_t at = 0; at < size; at += block) {
        int64_t whole = size - at < block ? size - at : block;
        uint8_t *header = target + done;
        int64_t packed;
        int method = COMPRESSED;
        /* lz4-java's blocks do not refer to earlier ones. */
        reset(stream);
        packed = compress(stream, (const char *)data + at, (char *)header + HEADER, (int)whole, (int)bound, 1);
        if (packed <= 0 || packed >= whole) {
            method = STORED;
            packed = whole;
            memcpy(header + HEADER, data + at, (size_t)whole);
        }
        memcpy(header, MAGIC, sizeof MAGIC - 1);
        header[TOKEN_AT] = (uint8_t)(method | level);
        write_half(header + PACKED_AT, (uint32_t)packed);
        write_half(header + SIZE_AT, (uint32_t)whole);
        write_half(header + CHECK_AT, xxh32(data + at, whole, SEED) & CHECK_MASK);
        done += HEADER + packed;
    }
    return done;
}

/* Returns the index of the first piece of step bytes whose CRC32 is not the expected one (big-endian), or -1. */
int64_t find_wrong_crc(const uint8_t *data, int64_t size, int64_t step, const uint8_t *expected) {
    uint32_t tables[8][256];
    /* CRC-32, of Hadoop's checksum files. */
    fill_tables(tables, 0xEDB88320);
    for (int64_t piece = 0, at = 0; at < size; piece++, at += step) {
        int64_t length = size - at < step ? size - at : step;
        uint32_t crc = ~extend_by_tables(0xFFFFFFFF, data + at, length, tables);
        if (crc != (uint32_t)read_big_endian(expected + 4 * piece)) return piece;
    }
    return -1;
}
