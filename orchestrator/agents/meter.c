/* Counts flows in bins of time at TCX ingress and egress of a network device: packets, bytes and frames.
 *
 * Nothing is copied of a packet, and none is changed (headers may be moved together). Each processor keeps the bins
 * that it adds to in `recent`, where a flow has two places to choose from; one that is over, or whose place another flow
 * needs, goes into the ring `counted`, which the loader empties, so that a flow and bin may come in several parts. It
 * reads `recent` when the programs are detached. What has no place in a full ring is counted as lost.
 *
 * It includes nothing, so that it compiles to the same byte code on every processor; tests/helpers/bpf_objects.py says
 * how. Types, helpers and offsets are those of linux/bpf.h, which never change.
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define SWAPPED(number) __builtin_bswap16(number)

enum { ARRAY = 2, PERCPU_ARRAY = 6, RINGBUF = 27 }; /* types of maps */
enum { PASS_ON = -1, NO_WAKEUP = 1, PLACES = 512, RING_BYTES = 1 << 23 };
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

struct flow_bin { /* what packets are counted together; an IPv4 address takes the first word; these and ports in network order */
    u32 src[4], dst[4];
    u16 src_port, dst_port;
    u16 protocol; /* of IP, or the Ethernet type of what is none */
    u8 direction, version;
    u64 bin;
};

struct counts { /* first and last packet in nanoseconds since the begin of the bin */
    u64 packets, bytes, frames, wire_bytes, payload_bytes, first, last;
};

struct entry {
    struct flow_bin key;
    struct counts sums;
};

struct settings { /* which the loader writes */
    u64 wall_minus_monotonic_ns, width_ns;
};

struct losses { /* what had no place in a full ring */
    u64 packets, bytes;
};

/* How the loader makes maps: type, bytes of key and value, entries, flags. */
struct map {
    u32 type, key_bytes, value_bytes, entries, flags;
};
const char SECTION("license") licensed[] = "Apache-2.0";
struct map SECTION("maps") settings = {ARRAY, 4, sizeof(struct settings), 1, 0};
struct map SECTION("maps") lost = {ARRAY, 4, sizeof(struct losses), 1, 0};
struct map SECTION("maps") recent = {PERCPU_ARRAY, 4, sizeof(struct entry), PLACES, 0};
struct map SECTION("maps") counted = {RINGBUF, 0, 0, RING_BYTES, 0}; /* of struct entry */

static void *(*const lookup)(void *map, const void *key) = (void *)1;
static u64 (*const monotonic_ns)(void) = (void *)5;
static long (*const pull)(struct __sk_buff *packet, u32 bytes) = (void *)39;
static long (*const output)(void *ring, const void *data, u64 bytes, u64 flags) = (void *)130;

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

/* Puts what a processor kept of a flow and bin into the ring. */
static __attribute__((always_inline)) void hand_on(struct entry *entry) {
    u32 zero = 0;
    if (!output(&counted, entry, sizeof(*entry), NO_WAKEUP))
        return;
    struct losses *losses = lookup(&lost, &zero);
    if (losses) {
        __sync_fetch_and_add(&losses->packets, entry->sums.packets);
        __sync_fetch_and_add(&losses->bytes, entry->sums.wire_bytes);
    }
}

static __attribute__((always_inline)) int same_flow(struct flow_bin *one, struct flow_bin *other) {
    u64 *a = (u64 *)one, *b = (u64 *)other;
    return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]));
}

/* Which place of `recent` a flow takes first: a multiplicative hash (Knuth, The Art of Computer Programming, 6.4). */
static __attribute__((always_inline)) u32 place_of(struct flow_bin *flow) {
    u64 *words = (u64 *)flow, golden = 0x9e3779b97f4a7c15, mixed = (words[0] ^ words[1]) * golden;
    mixed = (mixed ^ words[2] ^ words[3]) * golden;
    return ((mixed ^ words[4]) * golden) >> 32 & (PLACES - 1);
}

static __attribute__((always_inline)) int count(struct __sk_buff *packet, u8 direction) {
    u32 zero = 0, at = ETHERNET, header = 0;
    struct flow_bin key = {.direction = direction};
    struct settings *set = lookup(&settings, &zero);
    if (!set || !set->width_ns)
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
    u32 place = place_of(&key), beside = place ^ 1;
    struct entry *entry = lookup(&recent, &place);
    if (!entry)
        return PASS_ON;
    if (!same_flow(&entry->key, &key)) {
        struct entry *other = lookup(&recent, &beside);
        if (other && (same_flow(&other->key, &key) || other->key.bin < entry->key.bin))
            entry = other;
    }
    u64 now = monotonic_ns() + set->wall_minus_monotonic_ns, since = now - entry->key.bin * set->width_ns;
    if (entry->sums.packets && (since >= set->width_ns || !same_flow(&entry->key, &key))) {
        hand_on(entry);
        entry->sums.packets = 0;
    }
    if (!entry->sums.packets) {
        key.bin = now / set->width_ns;
        since = now % set->width_ns;
        entry->key = key;
        entry->sums = (struct counts){.first = since};
    }
    entry->sums.packets += 1;
    entry->sums.bytes += packet->len + tag;
    entry->sums.frames += frames;
    entry->sums.wire_bytes += packet->len + tag + (u64)(frames - 1) * (length + tag);
    entry->sums.payload_bytes += payload;
    entry->sums.last = since;
    return PASS_ON;
}

SECTION("ingress") int meter_in(struct __sk_buff *packet) { return count(packet, IN); }
SECTION("egress") int meter_out(struct __sk_buff *packet) { return count(packet, OUT); }
