/* Many connections with one small request in flight each, in one thread, with neither a client library nor an interpreter.
 *
 *   many PORT PID CONNECTIONS WARM_S SECONDS ERROR_CODE_OFFSET <REQUESTS
 *
 * REQUESTS are whole requests, each including its size. Connection i sends request i modulo their number to 127.0.0.1:PORT, and
 * sends it again as soon as its response is there. ERROR_CODE_OFFSET is the offset of the error code in a response, without the
 * response's size. A connection's first request is sent, and repeated while its response has an error, before the next connection is
 * opened: so no connection is lost to a full backlog, and partitions have leaders. After WARM_S seconds it measures for SECONDS.
 * Prints one line of JSON: requests per second, median and 99th percentile of the times from before a send until its whole response is
 * received, in ms, the processor time of process PID (user and system) for each request in µs, and the processor time of this program,
 * in s. If the last is close to `seconds`, this program was the bottleneck.
 */
#define PROGRAM "many"
#include "common.h"
#include "sockets.h"
#include "requests.h"

#include <sys/epoll.h>
#include <unistd.h>

#define MAX_EVENTS 1024
#define TIMEOUT_S 30
#define MAX_RESPONSE 512

struct connection {
    int fd, request, got;
    double sent_at;
    unsigned char response[MAX_RESPONSE];
};

static int error_code_offset;

static void send_request(struct connection *self) {
    self->got = 0, self->sent_at = now();
    int size = requests[self->request].size;
    if (send(self->fd, requests[self->request].bytes, size, 0) != size) die("send", strerror(errno));
}

static int receive(struct connection *self) { /* 1 when the response is whole */
    ssize_t more = recv(self->fd, self->response + self->got, sizeof self->response - self->got, 0);
    if (more <= 0) die("recv", more ? strerror(errno) : "the broker closed the connection");
    self->got += more;
    return self->got >= 4 && self->got >= 4 + (int)ntohl(*(uint32_t *)self->response);
}

static int error_code(struct connection *self) {
    return (short)ntohs(*(uint16_t *)(self->response + 4 + error_code_offset));
}

static void open_connection(struct connection *self, int port) {
    self->fd = connect_to(port);
    for (double deadline = now() + TIMEOUT_S;; pause_ms(10)) {
        send_request(self);
        while (!receive(self));
        if (!error_code(self)) return;
        if (now() > deadline) die("first request", "every response has an error");
    }
}

int main(int count, char **arguments) {
    if (count != 7) die("usage", "many PORT PID CONNECTIONS WARM_S SECONDS ERROR_CODE_OFFSET <REQUESTS, see the comment in many.c");
    int port = atoi(arguments[1]), connections = atoi(arguments[3]);
    error_code_offset = atoi(arguments[6]);
    double warm_s = atof(arguments[4]), seconds = atof(arguments[5]);
    allow_connections(connections);
    clockid_t broker_clock = processor_clock(arguments[2]);
    read_requests();
    int epoll = epoll_create1(0);
    struct connection *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        all[i].request = i % request_count;
        open_connection(&all[i], port);
        struct epoll_event event = {EPOLLIN, {.ptr = &all[i]}};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event)) die("epoll_ctl", strerror(errno));
    }
    for (int i = 0; i < connections; i++) send_request(&all[i]);
    long done = 0, capacity = 1 << 22;
    double *latencies = malloc(capacity * sizeof *latencies);
    struct epoll_event events[MAX_EVENTS];
    double began = now() + warm_s, ends = began + seconds, broker_s = 0, own_s = 0;
    int warm = 1;
    for (double at = now(); at < ends && done < capacity - MAX_EVENTS; at = now()) {
        if (warm && at >= began) {
            warm = 0, done = 0, began = at, ends = at + seconds;
            broker_s = processor_s(broker_clock), own_s = processor_s(CLOCK_PROCESS_CPUTIME_ID);
        }
        int ready = epoll_wait(epoll, events, MAX_EVENTS, TIMEOUT_S * 1000);
        if (ready <= 0) die("epoll_wait", ready ? strerror(errno) : "no response within 30 s");
        for (int i = 0; i < ready; i++) {
            struct connection *self = events[i].data.ptr;
            if (!receive(self)) continue;
            if (error_code(self)) fprintf(stderr, PROGRAM ": a response has error %d\n", error_code(self)), exit(1);
            latencies[done++] = (now() - self->sent_at) * 1e3;
            send_request(self);
        }
        if (warm) done = 0;
    }
    double took = now() - began;
    broker_s = processor_s(broker_clock) - broker_s, own_s = processor_s(CLOCK_PROCESS_CPUTIME_ID) - own_s;
    if (!done) die("measure", "no response while it measured");
    print_clients(took, latencies, done, broker_s, own_s);
    return 0;
}
