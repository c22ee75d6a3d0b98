/* The latency of one request at a time over a plain socket, with neither a client library nor an interpreter.
 *
 *   latency PORT COUNT ERROR_CODE_OFFSET <REQUEST
 *
 * Sends REQUEST, one request including its size, COUNT times to 127.0.0.1:PORT, each after the response to the last one.
 * ERROR_CODE_OFFSET is the offset of the error code in a response, without the response's size. Prints one line of JSON: median and
 * 99th percentile of the times from before the send until the whole response is received, in ms.
 */
#define PROGRAM "latency"
#include "common.h"
#include "sockets.h"

#include <unistd.h>

#define RECEIVE_TIMEOUT_S 30

static char request[1 << 20], response[1 << 16];

static void exchange(int fd, size_t size) { /* returns when the whole response is received */
    if (send(fd, request, size, 0) != (ssize_t)size) die("send", strerror(errno));
    size_t got = 0, whole = 4;
    while (got < whole) {
        ssize_t more = recv(fd, response + got, sizeof response - got, 0);
        if (more <= 0) die("recv", more ? strerror(errno) : "the broker closed the connection");
        got += more;
        if (got >= 4) whole = 4 + ntohl(*(uint32_t *)response);
    }
}

int main(int count, char **arguments) {
    if (count != 4) die("usage", "latency PORT COUNT ERROR_CODE_OFFSET <REQUEST, see the comment at the start of latency.c");
    int fd = connect_to(atoi(arguments[1]));
    struct timeval timeout = {RECEIVE_TIMEOUT_S, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    long requests = atol(arguments[2]), error_code_offset = atol(arguments[3]);
    size_t size = fread(request, 1, sizeof request, stdin);
    double *latencies = malloc(requests * sizeof *latencies);
    for (long i = 0; i < requests; i++) {
        double sent_at = now();
        exchange(fd, size);
        latencies[i] = (now() - sent_at) * 1e3;
        short code = ntohs(*(uint16_t *)(response + 4 + error_code_offset));
        if (code) fprintf(stderr, PROGRAM ": response %ld has error %d\n", i, code), exit(1);
    }
    qsort(latencies, requests, sizeof *latencies, ascending);
    printf("{\"p50\": %.6f, \"p99\": %.6f}\n", latencies[requests / 2], latencies[requests * 99 / 100]);
    return 0;
}
