// The far end of every tunnel, in the kernel and next to free: a packet that comes in goes back out by the same
// device with its addresses the other way round, and an echo request inside is made a reply. GRE around IPv4 without
// options, and ESP, which goes back as it came: whoever sealed it opens it.
//
//   clang -O2 -target bpf -c reflect.c -o reflect.o
//   tc qdisc add dev DEVICE clsact
//   tc filter add dev DEVICE ingress bpf direct-action object-file reflect.o section reflect
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

static int (*redirect)(__u32 device, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*pull)(struct __sk_buff *packet, __u32 length) = (void *)BPF_FUNC_skb_pull_data;

enum { ETHERNET = 14, IP = 20, GRE = 4, ICMP = 8, GRE_PROTOCOL = 47, ESP_PROTOCOL = 50 };
enum { LEAST = ETHERNET + IP + GRE + IP + ICMP };

struct addresses {
	__u32 source, destination;
} __attribute__((packed));

static void turn(unsigned char *ip)
{
	struct addresses *addresses = (void *)(ip + 12);
	__u32 source = addresses->source;

	addresses->source = addresses->destination;
	addresses->destination = source;
}

static void answer(unsigned char *icmp)
{
	// RFC 1624: what the message loses, its checksum gains.
	__u32 sum = (icmp[2] << 8 | icmp[3]) + (icmp[0] << 8);

	sum = (sum & 0xffff) + (sum >> 16);
	icmp[0] = 0;
	icmp[2] = sum >> 8;
	icmp[3] = sum;
}

__attribute__((section("reflect"), used)) int turn_back(struct __sk_buff *packet)
{
	if (packet->protocol != __builtin_bswap16(0x0800) || packet->len < LEAST || pull(packet, LEAST))
		return TC_ACT_OK;
	unsigned char *frame = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
	if (frame + LEAST > end)
		return TC_ACT_OK;
	unsigned char *ip = frame + ETHERNET, *inner = ip + IP + GRE;
	if (ip[9] != GRE_PROTOCOL && ip[9] != ESP_PROTOCOL)
		return TC_ACT_OK;
	for (int at = 0; at < 6; at++) {
		unsigned char byte = frame[at];

		frame[at] = frame[6 + at];
		frame[6 + at] = byte;
	}
	turn(ip);
	if (ip[9] == GRE_PROTOCOL && inner[IP] == 8) {
		turn(inner);
		answer(inner + IP);
	}
	return redirect(packet->ifindex, 0);
}

// A far end that is gone.
__attribute__((section("swallow"), used)) int swallowed(struct __sk_buff *packet)
{
	return TC_ACT_SHOT;
}

char terms[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
