/* New connections at a steady rate, in one thread, with neither a client library nor an interpreter.
 *
 *   connects PORT PID PER_S WARM_S SECONDS ERROR_CODE_OFFSET <REQUESTS
 *
 * REQUESTS are whole requests, each including its size. At each of the times, which are fixed in advance, it connects to 127.0.0.1:PORT,
 * sends the next request, waits for the response, and closes the connection. ERROR_CODE_OFFSET is the offset of the error code in a
 * response, without the response's size. After WARM_S seconds it measures for SECONDS. Prints one line of JSON: responses per second,
 * median and 99th percentile of the times from when a connection was due until its response is received, in ms, the processor time of
 * process PID (user and system) for each connection in µs, and the processor time of this program, in s.
 */
#define PROGRAM "connects"
#include "common.h"
#include "sockets.h"
#include "requests.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MAX_EVENTS 1024
#define MAX_OPEN 20000
#define MAX_RESPONSE 512

struct connection {
    int fd, request, got, is_sent;
    double due;
    unsigned char response[MAX_RESPONSE];
};

static int error_code_offset, open_count, measuring; /* errors before the measurement are ignored: a partition may have no leader yet */

static void begin(int epoll, int port, int request, double due) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct connection *self = calloc(1, sizeof *self);
    int one = 1;
    self->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), self->request = request, self->due = due;
    if (self->fd < 0 || ++open_count > MAX_OPEN) die("socket", "too many connections wait for the broker");
    setsockopt(self->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(self->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) die("connect", strerror(errno));
    struct epoll_event event = {EPOLLOUT, {.ptr = self}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event)) die("epoll_ctl", strerror(errno));
}

static void send_request(int epoll, struct connection *self) {
    int size = requests[self->request].size;
    if (send(self->fd, requests[self->request].bytes, size, 0) != size) die("send", strerror(errno));
    self->is_sent = 1;
    struct epoll_event event = {EPOLLIN, {.ptr = self}};
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, self->fd, &event)) die("epoll_ctl", strerror(errno));
}

static int receive(struct connection *self) { /* 1 when the response is whole */
    ssize_t more = recv(self->fd, self->response + self->got, sizeof self->response - self->got, 0);
    if (more <= 0) die("recv", more ? strerror(errno) : "the broker closed the connection");
    self->got += more;
    if (self->got < 4 || self->got < 4 + (int)ntohl(*(uint32_t *)self->response)) return 0;
    short code = ntohs(*(uint16_t *)(self->response + 4 + error_code_offset));
    if (code && measuring) fprintf(stderr, PROGRAM ": a response has error %d\n", code), exit(1);
    return 1;
}

int main(int count, char **arguments) {
    if (count != 7) die("usage", "connects PORT PID PER_S WARM_S SECONDS ERROR_CODE_OFFSET <REQUESTS, see the comment in connects.c");
    int port = atoi(arguments[1]), epoll = epoll_create1(0);
    double per_s = atof(arguments[3]), warm_s = atof(arguments[4]), seconds = atof(arguments[5]);
    error_code_offset = atoi(arguments[6]);
    allow_connections(MAX_OPEN);
    clockid_t broker_clock = processor_clock(arguments[2]);
    read_requests();
    double *latencies = calloc((size_t)(per_s * (seconds + 1)) + MAX_OPEN, sizeof *latencies);
    long begun = 0, done = 0;
    struct epoll_event events[MAX_EVENTS];
    double broker_s = 0, own_s = 0, starts = now(), began = starts + warm_s, ends = began + seconds;
    for (double at = starts; at < ends; at = now()) {
        if (!measuring && at >= began) {
            measuring = 1, began = at, ends = at + seconds;
            broker_s = processor_s(broker_clock), own_s = processor_s(CLOCK_PROCESS_CPUTIME_ID);
        }
        for (; starts + begun / per_s <= at; begun++) begin(epoll, port, begun % request_count, starts + begun / per_s);
        double wait_s = starts + begun / per_s - at;
        struct timespec wait = {0, wait_s <= 0 ? 10000 : wait_s >= 1 ? 999999999 : (long)(wait_s * 1e9)};
        int ready = epoll_pwait2(epoll, events, MAX_EVENTS, &wait, NULL);
        for (int i = 0; i < ready; i++) {
            struct connection *self = events[i].data.ptr;
            if (!self->is_sent) {
                send_request(epoll, self);
            } else if (receive(self)) {
                if (measuring) latencies[done++] = (now() - self->due) * 1e3;
                close(self->fd), free(self), open_count--;
            }
        }
    }
    double took = now() - began;
    broker_s = processor_s(broker_clock) - broker_s, own_s = processor_s(CLOCK_PROCESS_CPUTIME_ID) - own_s;
    if (!done) die("measure", "no response while it measured");
    print_clients(took, latencies, done, broker_s, own_s);
    return 0;
}
