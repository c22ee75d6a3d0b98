/* Shared by the load programs that read whole requests, each including its size, from standard input. */
#define MAX_REQUESTS 4096

static char stdin_bytes[16 << 20];
static struct { char *bytes; int size; } requests[MAX_REQUESTS];
static int request_count;

static inline void read_requests(void) {
    size_t size = fread(stdin_bytes, 1, sizeof stdin_bytes, stdin), at = 0;
    while (at + 4 <= size && request_count < MAX_REQUESTS) {
        int whole = 4 + ntohl(*(uint32_t *)(stdin_bytes + at));
        requests[request_count].bytes = stdin_bytes + at, requests[request_count++].size = whole;
        at += whole;
    }
    if (!request_count || at != size) die("standard input", "not a number of whole requests");
}
