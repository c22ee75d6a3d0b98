/* Members of one consumer group, each with its own connection, in one thread with neither a client library nor an interpreter.
 *
 *   members PORT PID classic|consumer GROUP TOPIC MEMBERS REPEATS
 *
 * MEMBERS members of GROUP join at once; TOPIC has as many partitions. Then, REPEATS times, one member leaves and another joins.
 * Until the group is settled, each member sends its next heartbeat as soon as its last request is answered. The group is settled
 * when all members are in one generation or member epoch, which is later than the last, and every partition has an owner. Requests
 * on the way are answered before the next step begins. Prints one line of JSON: seconds of the start; medians of the times that
 * the group takes to settle after a leave, after a join, and after either, in ms; for one of those the processor time of process
 * PID and of this program, in ms, and the number of requests.
 */
#define PROGRAM "members"
#include "common.h"
#include "sockets.h"

#include <stdint.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { JOIN_GROUP = 11, HEARTBEAT = 12, LEAVE_GROUP = 13, SYNC_GROUP = 14, API_VERSIONS = 18, CONSUMER_GROUP_HEARTBEAT = 68 };
enum { LOADING = 14, NOT_COORDINATOR = 16, ILLEGAL_GENERATION = 22, REBALANCE_IN_PROGRESS = 27, MEMBER_ID_REQUIRED = 79 };
#define MAX_EVENTS 1024
#define MAX_GENERATION (1 << 20)
#define MAX_ID 100
#define SETTLED_WITHIN_S 120
#define SESSION_TIMEOUT_MS 45000
#define REBALANCE_TIMEOUT_MS 300000
#define NO_GENERATION (-1)

struct bytes {
    unsigned char *at;
    int size, capacity;
};

struct member { /* `request`: API key of the unanswered one, 0 without one. `unreported`: assigned partitions as they were received. */
    int fd, request, is_leaving, generation, owned, id_size;
    char id[MAX_ID];
    struct bytes response, unreported;
};

static const char *group, *topic;
static int is_classic, partitions, epoll, outstanding;
static struct bytes out;
static long sent;
/* Of all members of the group: their number, and by generation + 1; partitions that they own together. */
static int size, in_generation[MAX_GENERATION + 2], owned;

/* Writing a request, of a flexible version */

static void reserve(struct bytes *buffer, int more) {
    if (buffer->size + more <= buffer->capacity) return;
    buffer->capacity = 2 * (buffer->size + more);
    if (!(buffer->at = realloc(buffer->at, buffer->capacity))) die("realloc", "no memory");
}

static void put(const void *content, int count) {
    reserve(&out, count);
    memcpy(out.at + out.size, content, count);
    out.size += count;
}

static void put8(int value) { unsigned char byte = value; put(&byte, 1); }
static void put16(int value) { uint16_t bytes = htons(value); put(&bytes, 2); }
static void put32(int value) { uint32_t bytes = htonl(value); put(&bytes, 4); }

static void put_varint(unsigned value) {
    for (; value >= 128; value >>= 7) put8(value | 128);
    put8(value);
}

static void put_string(const char *text, int length) { put_varint(length + 1), put(text, length); }
static void put_text(const char *text) { put_string(text, strlen(text)); }
static void put_null(void) { put8(0); }
static void put_tags(void) { put8(0); }

static void begin_request(int key, int version) {
    out.size = 0;
    put32(0), put16(key), put16(version), put32(0), put16(5), put("bench", 5), put_tags();
    if (key != API_VERSIONS) put_text(group);
}

static void send_request(struct member *self, int key) {
    uint32_t length = htonl(out.size - 4);
    memcpy(out.at, &length, 4);
    for (int at = 0, more; at < out.size; at += more) /* the socket blocks: only the assignments of a leader are large */
        if ((more = send(self->fd, out.at + at, out.size - at, 0)) <= 0) die("send", strerror(errno));
    self->request = key, self->response.size = 0;
    outstanding++, sent++;
}

/* Reading a response. It is received as a whole first, so that nothing reads past its end if the broker is sound. */

static int get16(const unsigned char **at) { *at += 2; return (short)((*at)[-2] << 8 | (*at)[-1]); }
static int get32(const unsigned char **at) { *at += 4; return (int)ntohl(*(uint32_t *)(*at - 4)); }

static unsigned get_varint(const unsigned char **at) {
    unsigned value = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (byte & 127u) << shift;
        if (byte < 128) return value;
    }
}

static const char *get_string(const unsigned char **at, int *length) { /* null is empty */
    unsigned prefix = get_varint(at);
    *length = prefix ? (int)prefix - 1 : 0;
    *at += *length;
    return (const char *)*at - *length;
}

static void skip_string(const unsigned char **at) { int length; get_string(at, &length); }

static int receive(struct member *self) { /* 1 when the response is whole */
    struct bytes *in = &self->response;
    reserve(in, 512);
    ssize_t more = recv(self->fd, in->at + in->size, in->capacity - in->size, 0);
    if (more <= 0) die("recv", more ? strerror(errno) : "the broker closed the connection");
    in->size += more;
    if (in->size < 4) return 0;
    int whole = 4 + (int)ntohl(*(uint32_t *)in->at);
    if (in->size < whole) reserve(in, whole - in->size);
    return in->size >= whole;
}

/* The group */

static void count_member(struct member *self, int generation, int partitions_owned) {
    if (generation >= MAX_GENERATION) die("generation", "too high");
    in_generation[self->generation + 1]--, in_generation[generation + 1]++;
    owned += partitions_owned - self->owned;
    self->generation = generation, self->owned = partitions_owned;
}

static int is_settled(int generation, int since) {
    return generation > since && owned == partitions && in_generation[generation + 1] == size;
}

static void fail(struct member *self, int error) {
    char text[80];
    snprintf(text, sizeof text, "the response to API key %d has error %d", self->request, error);
    die("response", text);
}

/* The consumer protocol */

static void send_consumer_heartbeat(struct member *self, int epoch) {
    int joins = epoch == 0;
    begin_request(CONSUMER_GROUP_HEARTBEAT, 1);
    put_string(self->id, self->id_size), put32(epoch), put_null(), put_null(), put32(joins ? REBALANCE_TIMEOUT_MS : -1);
    if (joins) put_varint(2), put_text(topic); else put_null();
    put_null(), put_null();
    if (joins) put_varint(1); /* it owns nothing */
    else if (self->unreported.size) put(self->unreported.at, self->unreported.size);
    else put_null();
    put_tags();
    self->unreported.size = 0;
    send_request(self, CONSUMER_GROUP_HEARTBEAT);
}

static void handle_consumer_heartbeat(struct member *self, const unsigned char *at) {
    int error = get16(&at);
    if ((error == LOADING || error == NOT_COORDINATOR) && !self->is_leaving) return; /* a busy machine: its next heartbeat repeats it */
    if (error) fail(self, error);
    skip_string(&at), skip_string(&at);
    int epoch = get32(&at), count = self->owned;
    get32(&at);
    if (*at++ != 0xFF) {
        const unsigned char *given = at;
        count = 0;
        for (int topics = get_varint(&at) - 1; topics > 0; topics--) {
            at += 16;
            int some = get_varint(&at) - 1;
            count += some, at += 4 * some;
            at++; /* tagged fields */
        }
        reserve(&self->unreported, at - given);
        memcpy(self->unreported.at, given, at - given);
        self->unreported.size = at - given;
    }
    count_member(self, self->is_leaving ? NO_GENERATION : epoch, self->is_leaving ? 0 : count);
}

/* The classic protocol */

static void send_join(struct member *self) {
    int length = strlen(topic);
    begin_request(JOIN_GROUP, 9);
    put32(SESSION_TIMEOUT_MS), put32(REBALANCE_TIMEOUT_MS), put_string(self->id, self->id_size), put_null();
    put_text("consumer"), put_varint(2), put_text("range");
    put_varint(18 + length - 1); /* version 1 of ConsumerProtocolSubscription: one topic, no user data, nothing owned */
    put16(1), put32(1), put16(length), put(topic, length), put32(-1), put32(0), put_tags();
    put_null(), put_tags();
    send_request(self, JOIN_GROUP);
}

static void put_assignment(int number, int count) { /* every `count`-th partition, from `number` on; ConsumerProtocolAssignment */
    int length = strlen(topic), some = (partitions - number + count - 1) / count;
    put_varint(2 + 4 + 2 + length + 4 + 4 * some + 4 + 1);
    put16(1), put32(1), put16(length), put(topic, length), put32(some);
    for (int partition = number; partition < partitions; partition += count) put32(partition);
    put32(-1);
}

static void handle_join(struct member *self, const unsigned char *at) { /* and sends SyncGroup */
    int error = get16(&at), generation = get32(&at), length;
    skip_string(&at), skip_string(&at), skip_string(&at), at++;
    const char *id = get_string(&at, &length);
    if (length > MAX_ID) die("member id", "too long");
    memcpy(self->id, id, self->id_size = length);
    if (error == MEMBER_ID_REQUIRED || error == REBALANCE_IN_PROGRESS) { send_join(self); return; }
    if (error) fail(self, error);
    int count = get_varint(&at) - 1;
    begin_request(SYNC_GROUP, 5);
    put32(generation), put_string(self->id, self->id_size), put_null(), put_text("consumer"), put_text("range");
    put_varint(count + 1);
    for (int i = 0; i < count; i++) {
        id = get_string(&at, &length);
        skip_string(&at), skip_string(&at), at++;
        put_string(id, length), put_assignment(i, count), put_tags();
    }
    put_tags();
    count_member(self, generation, 0);
    send_request(self, SYNC_GROUP);
}

static int owned_in(const unsigned char *at) { /* partitions in a ConsumerProtocolAssignment */
    int count = 0, some;
    get16(&at);
    for (int topics = get32(&at); topics > 0; topics--) {
        at += get16(&at);
        some = get32(&at), count += some, at += 4 * some;
    }
    return count;
}

static void handle_sync(struct member *self, const unsigned char *at) {
    int error = get16(&at), length;
    if (error == REBALANCE_IN_PROGRESS || error == ILLEGAL_GENERATION) { send_join(self); return; }
    if (error) fail(self, error);
    skip_string(&at), skip_string(&at);
    const char *assignment = get_string(&at, &length);
    count_member(self, self->generation, length ? owned_in((const unsigned char *)assignment) : 0);
}

static void send_classic_heartbeat(struct member *self) {
    begin_request(HEARTBEAT, 4);
    put32(self->generation), put_string(self->id, self->id_size), put_null(), put_tags();
    send_request(self, HEARTBEAT);
}

static void handle_classic_heartbeat(struct member *self, const unsigned char *at) {
    int error = get16(&at);
    if (error == REBALANCE_IN_PROGRESS || error == ILLEGAL_GENERATION) send_join(self);
    else if (error) fail(self, error);
}

/* Either */

static void join(struct member *self) {
    size++, in_generation[NO_GENERATION + 1]++;
    if (is_classic) send_join(self); else send_consumer_heartbeat(self, 0);
}

static void heartbeat(struct member *self) {
    if (is_classic) send_classic_heartbeat(self);
    else send_consumer_heartbeat(self, self->generation == NO_GENERATION ? 0 : self->generation);
}

static void leave(struct member *self) {
    self->is_leaving = 1;
    if (!is_classic) { send_consumer_heartbeat(self, -1); return; }
    begin_request(LEAVE_GROUP, 5);
    put_varint(2), put_string(self->id, self->id_size), put_null(), put_null(), put_tags(), put_tags();
    send_request(self, LEAVE_GROUP);
}

static void handle(struct member *self) {
    const unsigned char *at = self->response.at + 4 + 4 + 1 + 4; /* sizes of size, correlation id, tagged fields, throttle time */
    switch (self->request) {
    case CONSUMER_GROUP_HEARTBEAT: handle_consumer_heartbeat(self, at); return;
    case JOIN_GROUP: handle_join(self, at); return;
    case SYNC_GROUP: handle_sync(self, at); return;
    case HEARTBEAT: handle_classic_heartbeat(self, at); return;
    case LEAVE_GROUP: {
        int error = get16(&at);
        if (error) fail(self, error);
        count_member(self, NO_GENERATION, 0);
    }
    }
}

/* Receives responses until all requests are answered. Members send heartbeats until the group is settled in a generation after
 * `since`; returns the time at which it was, 0 if it was not. `leaving`: a member that sends none; NULL if no member leaves. */
static double receive_until(int since, const struct member *leaving) {
    struct epoll_event events[MAX_EVENTS];
    double settled_at = 0, deadline = now() + SETTLED_WITHIN_S;
    while (outstanding) {
        int ready = epoll_wait(epoll, events, MAX_EVENTS, SETTLED_WITHIN_S * 1000);
        if (ready <= 0 || now() > deadline) die("epoll_wait", ready < 0 ? strerror(errno) : "the group is not settled in time");
        for (int i = 0; i < ready; i++) {
            struct member *self = events[i].data.ptr;
            if (!receive(self)) continue;
            int before = outstanding--;
            handle(self);
            if (self == leaving) continue;
            if (!settled_at && is_settled(self->generation, since)) settled_at = now();
            if (!settled_at && outstanding < before) heartbeat(self);
        }
    }
    return settled_at;
}

static void open_member(struct member *self, int port) { /* its connection has been accepted when this returns */
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    self->fd = connect_to(port), self->generation = NO_GENERATION;
    if (!is_classic)
        for (self->id_size = 0; self->id_size < 22;) self->id[self->id_size++] = digits[rand() % 64];
    begin_request(API_VERSIONS, 3);
    put_text("bench"), put_text("1"), put_tags();
    send_request(self, API_VERSIONS);
    while (!receive(self));
    outstanding--, sent--;
    struct epoll_event event = {EPOLLIN, {.ptr = self}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event)) die("epoll_ctl", strerror(errno));
}

static double start(struct member *all, int count) {
    double began = now();
    for (int i = 0; i < count; i++) join(&all[i]);
    return receive_until(NO_GENERATION, NULL) - began;
}

static double remove_last(struct member *all) { /* of `size` members */
    struct member *leaving = &all[size - 1];
    int since = leaving->generation;
    double began = now();
    leave(leaving);
    receive_until(since, leaving);
    size--, in_generation[NO_GENERATION + 1]--;
    for (int i = 0; i < size; i++) heartbeat(&all[i]);
    double took = receive_until(since, NULL) - began;
    close(leaving->fd);
    return took;
}

static double add(struct member *all, struct member *joining) { /* takes the place after the `size` members */
    int since = all[0].generation;
    all[size] = *joining;
    struct epoll_event event = {EPOLLIN, {.ptr = &all[size]}};
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, joining->fd, &event)) die("epoll_ctl", strerror(errno));
    double began = now();
    for (int i = 0, before = size; i < before; i++) heartbeat(&all[i]);
    join(&all[size]);
    return receive_until(since, NULL) - began;
}

static double median_ms(double *seconds, int count) {
    qsort(seconds, count, sizeof *seconds, ascending);
    return (seconds[(count - 1) / 2] + seconds[count / 2]) / 2 * 1e3;
}

int main(int count, char **arguments) {
    if (count != 8) die("usage", "members PORT PID classic|consumer GROUP TOPIC MEMBERS REPEATS, see the comment in members.c");
    int port = atoi(arguments[1]), members = atoi(arguments[6]), repeats = atoi(arguments[7]);
    clockid_t broker_clock = processor_clock(arguments[2]);
    is_classic = !strcmp(arguments[3], "classic"), group = arguments[4], topic = arguments[5], partitions = members;
    srand(getpid());
    allow_connections(members + repeats);
    epoll = epoll_create1(0);
    struct member *all = calloc(members, sizeof *all), *spare = calloc(repeats, sizeof *spare);
    for (int i = 0; i < members; i++) open_member(&all[i], port);
    double start_s = start(all, members);
    for (int i = 0; i < repeats; i++) open_member(&spare[i], port);
    double *left = malloc(repeats * sizeof *left), *joined = malloc(repeats * sizeof *joined), *both = malloc(2 * repeats * sizeof *both);
    double broker_s = processor_s(broker_clock), own_s = processor_s(CLOCK_PROCESS_CPUTIME_ID);
    sent = 0;
    for (int i = 0; i < repeats; i++) {
        both[2 * i] = left[i] = remove_last(all);
        both[2 * i + 1] = joined[i] = add(all, &spare[i]);
    }
    double each_ms = 1e3 / (2 * repeats);
    broker_s = processor_s(broker_clock) - broker_s, own_s = processor_s(CLOCK_PROCESS_CPUTIME_ID) - own_s;
    printf("{\"start_s\": %.6f, \"leave_ms\": %.3f, \"join_ms\": %.3f, \"rebalance_ms\": %.3f, \"broker_cpu_ms\": %.3f, "
           "\"members_cpu_ms\": %.3f, \"requests\": %.1f}\n", start_s, median_ms(left, repeats), median_ms(joined, repeats),
           median_ms(both, 2 * repeats), broker_s * each_ms, own_s * each_ms, (double)sent / (2 * repeats));
    return 0;
}
