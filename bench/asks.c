/* One plain socket that asks one thing at a time: the latency of an answer, with neither a client library nor an interpreter in between.
 *
 *   asks PORT COUNT ERROR_AT <REQUEST       REQUEST: one request with its frame, sent COUNT times to 127.0.0.1, each when the last
 *                                           one was answered. ERROR_AT: where in an answer (without its frame) its error code is
 *
 * Prints one line of JSON: the median and the 99th percentile of the times from before the sending until the whole answer is here, in ms.
 */
#define PROGRAM "asks"
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_S 30

static char request[1 << 20], answer[1 << 16];

static int connected(int port) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval patience = {PATIENCE_S, 0};
    int one = 1, it = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(it, (struct sockaddr *)&where, sizeof where)) die("connect", strerror(errno));
    setsockopt(it, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(it, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return it;
}

static void ask(int it, size_t size) { /* returns when the whole answer is in `answer` */
    if (send(it, request, size, 0) != (ssize_t)size) die("send", strerror(errno));
    size_t got = 0, whole = 4;
    while (got < whole) {
        ssize_t more = recv(it, answer + got, sizeof answer - got, 0);
        if (more <= 0) die("recv", more ? strerror(errno) : "the broker closed the connection");
        got += more;
        if (got >= 4) whole = 4 + ntohl(*(uint32_t *)answer);
    }
}

int main(int count, char **words) {
    if (count != 4) die("usage", "asks PORT COUNT ERROR_AT <REQUEST, see the head of asks.c");
    int it = connected(atoi(words[1]));
    long asked = atol(words[2]), error_at = atol(words[3]);
    size_t size = fread(request, 1, sizeof request, stdin);
    double *took = malloc(asked * sizeof *took);
    for (long i = 0; i < asked; i++) {
        double began = now();
        ask(it, size);
        took[i] = (now() - began) * 1e3;
        short code = ntohs(*(uint16_t *)(answer + 4 + error_at));
        if (code) fprintf(stderr, PROGRAM ": answer %ld has error %d\n", i, code), exit(1);
    }
    qsort(took, asked, sizeof *took, ascending);
    printf("{\"p50\": %.6f, \"p99\": %.6f}\n", took[asked / 2], took[asked * 99 / 100]);
    return 0;
}
