/* The least work that a broker could do for a produce request: receive it, check the CRC of its batch, write the batch to a file and
 * send a response, in one thread with neither a protocol library nor an interpreter.
 *
 *   floor FILE BATCH_OFFSET <RESPONSE
 *
 * Listens on a free port of 127.0.0.1 and prints it. A request is a size (4 bytes) and as many bytes; its record batch begins
 * BATCH_OFFSET bytes after the start of the size and goes to its end. Every request gets the bytes RESPONSE. Runs until it is killed.
 */
#define PROGRAM "floor"
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __x86_64__
#include <nmmintrin.h>
#else
#include <arm_acle.h>
#endif

#define MAX_EVENTS 256
#define FIRST_BYTES 512
#define CRC_AT 17      /* of the CRC in a batch (KIP-98): what follows it is checked */
#define MAX_FILE (1L << 30) /* then it is written from the start again */

struct connection {
    int fd;
    long got, room;
    unsigned char *bytes;
};

static unsigned char response[4096];
static long response_size, batch_offset, written;
static int file;

#ifdef __x86_64__
__attribute__((target("sse4.2")))
#else
__attribute__((target("+crc")))
#endif
static uint32_t crc32c(const unsigned char *at, long size) {
    uint64_t crc = 0xffffffff, word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
#ifdef __x86_64__
        crc = _mm_crc32_u64(crc, word);
    }
    for (; size; at++, size--) crc = _mm_crc32_u8(crc, *at);
#else
        crc = __crc32cd(crc, word);
    }
    for (; size; at++, size--) crc = __crc32cb(crc, *at);
#endif
    return ~(uint32_t)crc;
}

static void append(const unsigned char *batch, long size) {
    uint32_t stored;
    memcpy(&stored, batch + CRC_AT, 4);
    if (ntohl(stored) != crc32c(batch + CRC_AT + 4, size - CRC_AT - 4)) die("batch", "wrong CRC");
    if (written + size > MAX_FILE) written = 0;
    if (pwrite(file, batch, size, written) != size) die("pwrite", strerror(errno));
    written += size;
}

static int serve(struct connection *self) { /* 0 when the peer has closed the connection */
    ssize_t more = recv(self->fd, self->bytes + self->got, self->room - self->got, 0);
    if (more <= 0) return 0;
    self->got += more;
    while (self->got >= 4) {
        long whole = 4 + (long)ntohl(*(uint32_t *)self->bytes);
        if (whole > self->room) self->bytes = realloc(self->bytes, self->room = whole);
        if (self->got < whole) return 1;
        append(self->bytes + batch_offset, whole - batch_offset);
        if (send(self->fd, response, response_size, MSG_NOSIGNAL) != response_size) return 0;
        memmove(self->bytes, self->bytes + whole, self->got -= whole);
    }
    return 1;
}

int main(int count, char **arguments) {
    if (count != 3) die("usage", "floor FILE BATCH_OFFSET <RESPONSE, see the comment in floor.c");
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files), files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    batch_offset = atol(arguments[2]), response_size = fread(response, 1, sizeof response, stdin);
    if ((file = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0600)) < 0) die(arguments[1], strerror(errno));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int one = 1, server = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    if (bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 4096)) die("listen", strerror(errno));
    getsockname(server, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port)), fflush(stdout);
    struct epoll_event event = {EPOLLIN, {.ptr = NULL}}, events[MAX_EVENTS];
    epoll_ctl(epoll, EPOLL_CTL_ADD, server, &event);
    for (;;) {
        int ready = epoll_wait(epoll, events, MAX_EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            struct connection *self = events[i].data.ptr;
            if (!self) {
                self = calloc(1, sizeof *self);
                self->fd = accept(server, NULL, NULL), self->bytes = malloc(self->room = FIRST_BYTES);
                setsockopt(self->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                event.data.ptr = self;
                epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event);
            } else if (!serve(self)) {
                close(self->fd), free(self->bytes), free(self);
            }
        }
    }
}
