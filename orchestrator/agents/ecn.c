/* Marks packets as they leave by a network device (TCX egress) while more than a threshold waits in its queue.
 *
 * SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 * Only a program under the GPL may call functions of the kernel, and one of these leads to the device's queue.
 *
 * A packet that finds more bytes in the queue than `threshold` gets "congestion experienced" where it is ECN-capable
 * (RFC 3168); it is never dropped. The queue is the device's own, at its root, as the kernel counts it; or a virtual
 * one, to which every packet is added and which drains at a rate of its own (a phantom queue: Alizadeh et al., "Less Is
 * More: Trading a Little Bandwidth for Ultra-Low Latency in the Data Center", NSDI 2012).
 *
 * Symbols without a definition are numbers that the loader knows: `threshold` and `room` in bytes, `byte_cost` the time
 * that a byte takes in the virtual queue (2^-16 ns), 0 where there is none; and where the kernel keeps fields.
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define SWAPPED(number) __builtin_bswap16(number)
#define NUMBER(symbol) ((u64) & symbol)
#define FIELD(type, structure, symbol) (*(type *)((u8 *)(structure) + NUMBER(symbol)))

enum { ARRAY = 2, PERCPU_ARRAY = 6 }; /* types of maps */
enum { PASS_ON = -1, FINE = 6 }; /* a time of the virtual queue counts 2^-6 ns */
enum { IPV4 = 0x0800, IPV6 = 0x86dd, ETHERNET = 14 };

struct __sk_buff {
    u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex,
        ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id, family, remote_ip4, local_ip4,
        remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
    u64 flow_keys, tstamp;
    u32 wire_len, gso_segs;
    u64 sk;
    u32 gso_size;
};

struct counts { /* of one processor */
    u64 packets, capable;         /* all, and those that are ECN-capable */
    u64 marked, unmarkable;       /* beyond the threshold: those that were marked, and those that are not capable */
    u64 least_marked, most_passed; /* bytes in the queue: fewest at a mark, most at a capable packet without one */
};

/* How the loader makes maps: type, bytes of key and value, entries, flags. */
struct map {
    u32 type, key_bytes, value_bytes, entries, flags;
};
const char SECTION("license") licensed[] = "GPL";
struct map SECTION("maps") counted = {PERCPU_ARRAY, 4, sizeof(struct counts), 1, 0};
struct map SECTION("maps") emptied = {ARRAY, 4, sizeof(u64), 1, 0}; /* when the virtual queue will be */

#define KNOWN_TO_LOADER const u8 __attribute__((weak)) /* weak: it may be 0 */
extern KNOWN_TO_LOADER threshold, room, byte_cost;
extern KNOWN_TO_LOADER sk_buff_dev, net_device_qdisc, Qdisc_qstats_backlog;
extern void *bpf_cast_to_kern_ctx(struct __sk_buff *packet);
static void *(*const lookup)(void *map, const void *key) = (void *)1;
static u64 (*const monotonic_ns)(void) = (void *)5;
static long (*const load)(struct __sk_buff *packet, u32 offset, void *to, u32 bytes) = (void *)26;
static long (*const set_ce)(struct __sk_buff *packet) = (void *)97;

static __attribute__((always_inline)) int is_capable(struct __sk_buff *packet) {
    u16 type = SWAPPED((u16)packet->protocol);
    u8 first[2];
    if ((type != IPV4 && type != IPV6) || load(packet, ETHERNET, first, sizeof(first)))
        return 0;
    return (type == IPV4 ? first[1] & 3 : first[1] >> 4 & 3) != 0;
}

/* Bytes that wait at the root of the device. */
static __attribute__((always_inline)) u64 queued(struct __sk_buff *packet) {
    void *device = FIELD(void *, bpf_cast_to_kern_ctx(packet), sk_buff_dev);
    return FIELD(u32, FIELD(void *, device, net_device_qdisc), Qdisc_qstats_backlog);
}

/* Bytes that wait in the virtual queue; the packet is added, where there is room as in the device's own.
 * Of packets that find it empty on two processors at once, one may be left out. */
static __attribute__((always_inline)) u64 virtually_queued(struct __sk_buff *packet) {
    u32 zero = 0;
    u64 *empty = lookup(&emptied, &zero), now = monotonic_ns() << FINE;
    if (!empty)
        return 0;
    u64 until = *(volatile u64 *)empty;
    if (until < now)
        *(volatile u64 *)empty = until = now;
    u64 level = ((until - now) << (16 - FINE)) / NUMBER(byte_cost);
    if (level + packet->wire_len <= NUMBER(room))
        __sync_fetch_and_add(empty, (packet->wire_len * NUMBER(byte_cost)) >> (16 - FINE));
    return level;
}

SECTION("egress") int mark(struct __sk_buff *packet) {
    u32 zero = 0;
    struct counts *counts = lookup(&counted, &zero);
    if (!counts)
        return PASS_ON;
    u64 waiting = NUMBER(byte_cost) ? virtually_queued(packet) : queued(packet);
    int capable = is_capable(packet);
    counts->packets += 1;
    counts->capable += capable;
    if (waiting <= NUMBER(threshold)) {
        if (capable && waiting > counts->most_passed)
            counts->most_passed = waiting;
    } else if (capable && set_ce(packet) == 1) {
        if (!counts->marked || waiting < counts->least_marked)
            counts->least_marked = waiting;
        counts->marked += 1;
    } else {
        counts->unmarkable += 1;
    }
    return PASS_ON;
}
