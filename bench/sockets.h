/* Shared by load programs: connections to the broker without a client library, a process's processor time,
 * and the line that is printed. `group.c` uses the last two only. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
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

static inline void allow_connections(int count) { /* if this is refused, connect says so */
    struct rlimit files = {count + 64, count + 64};
    setrlimit(RLIMIT_NOFILE, &files);
}

/* `latencies`: of each request or delivery, in ms; they are sorted. `broker_s`, `own_s`: processor time meanwhile. */
static inline void print_clients(double took, double *latencies, long count, double broker_s, double own_s) {
    qsort(latencies, count, sizeof *latencies, ascending);
    printf("{\"seconds\": %.6f, \"per_s\": %.1f, \"p50\": %.6f, \"p99\": %.6f, \"broker_cpu_us\": %.3f, \"client_cpu_s\": %.3f}\n", took,
           count / took, latencies[count / 2], latencies[count * 99 / 100], broker_s / count * 1e6, own_s);
}
