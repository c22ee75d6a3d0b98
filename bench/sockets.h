/* Shared by the load programs without a client library: a connection to the broker, and a process's processor time. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static inline int connect_to(int port) { /* 127.0.0.1, without Nagle's algorithm */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static inline clockid_t processor_clock(const char *pid) {
    clockid_t clock;
    if (clock_getcpuclockid(atoi(pid), &clock)) die("pid", "no such process");
    return clock;
}

static inline double processor_s(clockid_t clock) { /* of a process: user and system, all threads */
    struct timespec t;
    if (clock_gettime(clock, &t)) die("clock_gettime", strerror(errno));
    return t.tv_sec + t.tv_nsec / 1e9;
}
