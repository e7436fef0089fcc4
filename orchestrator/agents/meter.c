/* Counts flows in bins of time at TCX ingress and egress of a network device: packets, bytes and frames.
 *
 * Nothing is copied of a packet, and none is changed (headers may be moved together). Counts go into the table that the loader has put into `tables`;
 * it puts an empty one there before it reads the old one. What has no place in a full table is counted as lost.
 * It includes nothing, so that it compiles to the same byte code on every processor; tests/helpers/bpf_objects.py says
 * how. Types, helpers and offsets are those of linux/bpf.h, which never change.
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define SWAPPED(number) __builtin_bswap16(number)

enum { PASS_ON = -1, ARRAY = 2, HASH = 1, ARRAY_OF_MAPS = 12, NO_PREALLOC = 1, NOEXIST = 1 };
enum { IPV4 = 0x0800, IPV6 = 0x86dd, VLAN = 0x8100, TCP = 6, UDP = 17, ETHERNET = 14, TAG = 4 };
enum { IN = 0, OUT = 1 };

struct __sk_buff {
    u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex,
        ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id, family, remote_ip4, local_ip4,
        remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
    u64 flow_keys, tstamp;
    u32 wire_len, gso_segs;
    u64 sk;
    u32 gso_size;
};

struct flow_bin { /* the key of a table; addresses of IPv4 take their first word, all else is in network order */
    u32 src[4], dst[4];
    u16 src_port, dst_port;
    u16 protocol; /* of IP, or the Ethernet type of what is none */
    u8 direction, version;
    u64 bin;
};

struct counts { /* its value; first and last packet in nanoseconds since the begin of the bin */
    u64 packets, bytes, frames, wire_bytes, payload_bytes, first, last;
};

struct settings { /* which the loader writes */
    u64 wall_minus_monotonic_ns, width_ns;
};

struct losses { /* what had no place in a full table */
    u64 packets, bytes;
};

/* How the loader makes maps: type, bytes of key and value, entries, flags. */
struct map {
    u32 type, key_bytes, value_bytes, entries, flags;
};
struct map SECTION("maps") settings = {ARRAY, 4, sizeof(struct settings), 1, 0};
struct map SECTION("maps") lost = {ARRAY, 4, sizeof(struct losses), 1, 0};
struct map SECTION("maps") tables = {ARRAY_OF_MAPS, 4, 4, 1, 0}; /* of the next one */
struct map SECTION("maps") counted = {HASH, sizeof(struct flow_bin), sizeof(struct counts), 65536, NO_PREALLOC};

static void *(*const lookup)(void *map, const void *key) = (void *)1;
static long (*const update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*const monotonic_ns)(void) = (void *)5;
static long (*const pull)(struct __sk_buff *packet, u32 bytes) = (void *)39;

/* Where so many bytes of a packet stand, from an offset on; nowhere in a packet that is shorter. */
static __attribute__((always_inline)) u8 *bytes_at(struct __sk_buff *packet, u32 offset, u32 bytes) {
    u8 *begin = (u8 *)(u64)packet->data;
    if (begin + offset + bytes <= (u8 *)(u64)packet->data_end)
        return begin + offset;
    if (pull(packet, offset + bytes)) /* headers that do not lie together yet */
        return 0;
    begin = (u8 *)(u64)packet->data;
    return begin + offset + bytes <= (u8 *)(u64)packet->data_end ? begin + offset : 0;
}

static __attribute__((always_inline)) int count(struct __sk_buff *packet, u8 direction) {
    u32 zero = 0, at = ETHERNET, header = 0;
    struct flow_bin key = {.direction = direction};
    struct settings *set = lookup(&settings, &zero);
    void *table = lookup(&tables, &zero);
    if (!set || !table || !set->width_ns)
        return PASS_ON;

    u8 *found;
    u16 type = SWAPPED((u16)packet->protocol);
    if (type == VLAN && (found = bytes_at(packet, at + 2, 2))) { /* a tag that the device has not taken out */
        type = SWAPPED(*(u16 *)found);
        at += TAG;
    }
    key.protocol = type;
    if (type == IPV4 && (found = bytes_at(packet, at, 20))) {
        key.version = 4;
        key.protocol = found[9];
        key.src[0] = *(u32 *)(found + 12);
        key.dst[0] = *(u32 *)(found + 16);
        if (!((found[6] & 0x1f) | found[7])) /* else a fragment but the first: it has no ports */
            header = (found[0] & 15) * 4;
    } else if (type == IPV6 && (found = bytes_at(packet, at, 40))) {
        key.version = 6;
        key.protocol = found[6];
        __builtin_memcpy(key.src, found + 8, 16);
        __builtin_memcpy(key.dst, found + 24, 16);
        header = 40;
    }
    u32 length = header ? at + header : packet->len; /* of all headers */
    if (header && (key.protocol == TCP || key.protocol == UDP)) {
        found = bytes_at(packet, at + header, key.protocol == TCP ? 14 : 8);
        if (found) {
            key.src_port = *(u16 *)found;
            key.dst_port = *(u16 *)(found + 2);
            length += key.protocol == TCP ? (found[12] >> 4) * 4 : 8;
        }
    }
    u32 tag = packet->vlan_present ? TAG : 0;
    u32 payload = packet->len > length ? packet->len - length : 0;
    u32 frames = packet->gso_size && payload ? (payload + packet->gso_size - 1) / packet->gso_size : 1;
    u64 now = monotonic_ns() + set->wall_minus_monotonic_ns;
    struct counts one = {
        .packets = 1,
        .bytes = packet->len + tag,
        .frames = frames,
        .wire_bytes = packet->len + tag + (u64)(frames - 1) * (length + tag),
        .payload_bytes = payload,
    };
    key.bin = now / set->width_ns;
    one.first = one.last = now % set->width_ns;

    struct counts *sum = lookup(table, &key);
    if (!sum) {
        if (!update(table, &key, &one, NOEXIST))
            return PASS_ON;
        sum = lookup(table, &key); /* another processor was first */
    }
    struct losses *losses = sum ? 0 : lookup(&lost, &zero);
    if (losses) {
        __sync_fetch_and_add(&losses->packets, 1);
        __sync_fetch_and_add(&losses->bytes, one.wire_bytes);
    }
    if (!sum)
        return PASS_ON;
    __sync_fetch_and_add(&sum->packets, 1);
    __sync_fetch_and_add(&sum->bytes, one.bytes);
    __sync_fetch_and_add(&sum->frames, frames);
    __sync_fetch_and_add(&sum->wire_bytes, one.wire_bytes);
    __sync_fetch_and_add(&sum->payload_bytes, payload);
    if (one.last > sum->last)
        sum->last = one.last;
    if (one.first < sum->first)
        sum->first = one.first;
    return PASS_ON;
}

SECTION("ingress") int meter_in(struct __sk_buff *packet) { return count(packet, IN); }
SECTION("egress") int meter_out(struct __sk_buff *packet) { return count(packet, OUT); }
