/* Many consumers of one partition, each with one fetch in flight, in one thread, with neither a client library nor an interpreter.
 *
 *   consumers PORT PID CONSUMERS PER_S WARM_S SECONDS ERROR_CODE_OFFSET FETCH_SIZE FETCH_OFFSET_AT FETCH_ERROR_AT BATCHES_AT <REQUESTS
 *
 * REQUESTS are two requests, each including its size: a Produce request with one batch of one record, and a Fetch request of FETCH_SIZE
 * bytes for the same partition, whose fetch offset is the 8 bytes at FETCH_OFFSET_AT. In a Fetch response, also including its size, the
 * partition's error code stands at FETCH_ERROR_AT, the size of the records at BATCHES_AT, and the batches follow. One connection sends the
 * Produce request PER_S times a second, at times that are fixed in advance. Each consumer asks again, from the offset that follows, as
 * soon as a response is there. After WARM_S it measures for SECONDS; records that are not received by then do not count, and an error
 * fails it; before, a Fetch with an error is repeated, because the partition may have no leader yet. Prints one line of JSON: deliveries
 * per second (of a record to one consumer), median and 99th percentile of the times from when a record was due until a consumer has
 * received it, in ms, the processor time of process PID for each delivery in µs, and the processor time of this program, in s.
 */
#define PROGRAM "consumers"
#include "common.h"
#include "sockets.h"

#include <endian.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MAX_EVENTS 1024
#define ROOM (1 << 16)
#define BATCH_HEAD 12 /* base offset and size */
#define RESPONSE_ERROR_AT 12 /* of a whole Fetch response: after its size, the correlation id and the throttle time */

struct connection {
    int fd;
    long got;
    int64_t next; /* the offset that it asks for */
    unsigned char response[ROOM];
};

static unsigned char requests[1 << 16], *produce_request, *fetch_request;
static long produce_size, fetch_size, fetch_offset_at, fetch_error_at, batches_at, error_code_offset, done, capacity = 1 << 24;
static double per_s, starts, *latencies;
static int64_t produced;
static int measuring;

static void fetch(struct connection *self) {
    int64_t offset = htobe64(self->next);
    memcpy(fetch_request + fetch_offset_at, &offset, 8);
    if (send(self->fd, fetch_request, fetch_size, 0) != fetch_size) die("send", strerror(errno));
}

static void produce(struct connection *self) { /* does not wait while the broker reads nothing: the consumers would wait too */
    static long sent;
    ssize_t more = send(self->fd, produce_request + sent, produce_size - sent, MSG_DONTWAIT);
    if (more < 0 && errno != EAGAIN) die("send", strerror(errno));
    if (more > 0) sent += more;
    if (sent == produce_size) sent = 0, produced++;
}

static int receive(struct connection *self) { /* the size of the response when it is whole, else 0 */
    ssize_t more = recv(self->fd, self->response + self->got, ROOM - self->got, 0);
    if (more <= 0) die("recv", more ? strerror(errno) : "the broker closed the connection, or a response is too large");
    self->got += more;
    long whole = self->got < 4 ? ROOM + 1 : 4 + (long)ntohl(*(uint32_t *)self->response);
    return self->got < whole ? 0 : whole;
}

static void take_acks(struct connection *self) { /* responses to several requests may lie one after the other */
    for (long whole = receive(self); whole && self->got >= whole; whole = 4 + (long)ntohl(*(uint32_t *)self->response)) {
        short code = ntohs(*(uint16_t *)(self->response + 4 + error_code_offset));
        if (code) fprintf(stderr, PROGRAM ": a Produce response has error %d\n", code), exit(1);
        memmove(self->response, self->response + whole, self->got -= whole);
        if (self->got < 4) return;
    }
}

static short fetch_error(struct connection *self, long size) {
    short code = size < RESPONSE_ERROR_AT + 2 ? 0 : ntohs(*(uint16_t *)(self->response + RESPONSE_ERROR_AT));
    if (!code && size < batches_at + 4) die("fetch", "a response without the partition");
    return code ? code : (short)ntohs(*(uint16_t *)(self->response + fetch_error_at));
}

static void take_records(struct connection *self) {
    long size = receive(self);
    if (!size) return;
    double at = now();
    short code = fetch_error(self, size);
    if (code) {
        if (measuring) fprintf(stderr, PROGRAM ": a Fetch response has error %d\n", code), exit(1);
        self->got = 0;
        fetch(self);
        return;
    }
    long left = ntohl(*(uint32_t *)(self->response + batches_at));
    unsigned char *batch = self->response + batches_at + 4;
    while (left >= BATCH_HEAD) {
        int64_t offset;
        memcpy(&offset, batch, 8);
        offset = be64toh(offset);
        long size = BATCH_HEAD + (long)ntohl(*(uint32_t *)(batch + 8));
        if (size > left) break;
        if (offset >= self->next) {
            if (measuring && done < capacity) latencies[done++] = (at - (starts + offset / per_s)) * 1e3; /* the topic was empty */
            self->next = offset + 1;
        }
        batch += size, left -= size;
    }
    self->got = 0;
    fetch(self);
}

static void watch(int epoll, struct connection *self) {
    struct epoll_event event = {EPOLLIN, {.ptr = self}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event)) die("epoll_ctl", strerror(errno));
}

int main(int count, char **arguments) {
    if (count != 12) die("usage", "consumers PORT PID CONSUMERS PER_S WARM_S SECONDS …, see the comment in consumers.c");
    int port = atoi(arguments[1]), consumers = atoi(arguments[3]);
    double warm_s = atof(arguments[5]), seconds = atof(arguments[6]);
    per_s = atof(arguments[4]), error_code_offset = atol(arguments[7]), fetch_size = atol(arguments[8]);
    fetch_offset_at = atol(arguments[9]), fetch_error_at = atol(arguments[10]), batches_at = atol(arguments[11]);
    allow_connections(consumers);
    clockid_t broker_clock = processor_clock(arguments[2]);
    produce_size = fread(requests, 1, sizeof requests, stdin) - fetch_size;
    produce_request = requests, fetch_request = requests + produce_size;
    latencies = malloc(capacity * sizeof *latencies);
    int epoll = epoll_create1(0);
    struct connection *producer = calloc(1, sizeof *producer), *all = calloc(consumers, sizeof *all);
    producer->fd = connect_to(port);
    for (int i = 0; i < consumers; i++) {
        all[i].fd = connect_to(port);
        fetch(&all[i]);
        watch(epoll, &all[i]);
    }
    watch(epoll, producer);
    struct epoll_event events[MAX_EVENTS];
    double broker_s = 0, own_s = 0, began = (starts = now()) + warm_s, ends = began + seconds;
    for (double at = now(); at < ends; at = now()) {
        if (!measuring && at >= began) {
            measuring = 1, began = at, ends = at + seconds;
            broker_s = processor_s(broker_clock), own_s = processor_s(CLOCK_PROCESS_CPUTIME_ID);
        }
        double due = starts + produced / per_s;
        if (at >= due) produce(producer);
        double wait_s = starts + produced / per_s - at;
        struct timespec wait = {0, wait_s <= 0 ? 10000 : wait_s >= 1 ? 999999999 : (long)(wait_s * 1e9)};
        int ready = epoll_pwait2(epoll, events, MAX_EVENTS, &wait, NULL);
        for (int i = 0; i < ready; i++) {
            struct connection *self = events[i].data.ptr;
            if (self == producer) take_acks(self);
            else take_records(self);
        }
    }
    double took = now() - began;
    broker_s = processor_s(broker_clock) - broker_s, own_s = processor_s(CLOCK_PROCESS_CPUTIME_ID) - own_s;
    if (!done) die("measure", "no record while it measured");
    print_clients(took, latencies, done, broker_s, own_s);
    return 0;
}
