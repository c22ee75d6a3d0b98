/* Produces through librdkafka and times each acknowledgement, to several partitions.
 *
 *   acks steady BOOTSTRAP TOPIC PARTITIONS SIZE PER_S SECONDS [setting=value…]   latency of each ack of a steady stream
 *   acks flood BOOTSTRAP TOPIC PARTITIONS SIZE RECORDS [setting=value…]          acks per second, as fast as possible
 *   acks watch BOOTSTRAP TOPIC PARTITIONS SIZE PER_S [setting=value…]            a line per ack: its time (CLOCK_MONOTONIC, s)
 *
 * A record's latency runs from rd_kafka_produce() until its delivery report, which a dedicated thread waits for. `steady` and
 * `watch` send to the partitions in turn; `flood` uses librdkafka's partitioner, as most programs do, and ignores PARTITIONS. `watch`
 * runs until SIGTERM, `steady` for SECONDS or until SIGTERM. At the end each prints one line of JSON, which has latencies only for
 * `steady`. Times are in seconds. The exit code is 1 if a record was rejected.
 */
#define PROGRAM "acks"
#include "common.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>

#define DRAIN_TIMEOUT_S 120

static rd_kafka_t *client;
static rd_kafka_topic_t *topic;
static char *payload;
static size_t size;
static double *latencies; /* seconds, in the order of acknowledgement; NULL: not recorded */
static volatile long acked, failed, done;
static volatile sig_atomic_t stop_requested;
static int watching;

static void on_stop(int number) {
    (void)number;
    stop_requested = 1;
}

static void on_delivery(rd_kafka_t *self, const rd_kafka_message_t *message, void *opaque) {
    (void)self, (void)opaque;
    double at = now();
    if (message->err) {
        failed++;
        fprintf(stderr, "acks: record rejected: %s\n", rd_kafka_err2str(message->err));
        return;
    }
    if (latencies) latencies[acked] = at - *(double *)message->_private;
    acked++;
    if (watching) printf("%.6f\n", at), fflush(stdout);
}

static void *deliver(void *argument) {
    (void)argument;
    while (!done) rd_kafka_poll(client, 100);
    return NULL;
}

static void start(const char *bootstrap, const char *name, char **settings, int count) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "acks", "all");
    set(conf, "log.connection.close", "false");
    set_all(conf, settings, count);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    client = new_client(RD_KAFKA_PRODUCER, conf);
    topic = rd_kafka_topic_new(client, name, NULL);
    const struct rd_kafka_metadata *metadata; /* connects and finds the leaders before the clock starts */
    rd_kafka_resp_err_t known = rd_kafka_metadata(client, 0, topic, &metadata, 30000);
    if (known) die("metadata", rd_kafka_err2str(known));
    rd_kafka_metadata_destroy(metadata);
    payload = malloc(size);
    srand(1);
    for (size_t i = 0; i < size; i++) payload[i] = rand();
}

static void send_one(int32_t partition, void *opaque) {
    while (rd_kafka_produce(topic, partition, 0, payload, size, NULL, 0, opaque) == -1) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        pause_ms(1);
    }
}

static long stream(long partitions, double per_s, long records, double *sent) {
    double began = now();
    long i = 0;
    for (; !stop_requested && (!records || i < records); i++) {
        double due = began + i / per_s;
        struct timespec at = {(time_t)due, (long)((due - (time_t)due) * 1e9)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        double *opaque = sent ? &sent[i] : NULL;
        if (opaque) *opaque = now();
        send_one(i % partitions, opaque);
    }
    return i;
}

int main(int count, char **arguments) {
    if (count < 7) die("usage", "acks steady|flood|watch BOOTSTRAP TOPIC PARTITIONS SIZE …, see the comment at the start of acks.c");
    int steady = !strcmp(arguments[1], "steady");
    watching = !strcmp(arguments[1], "watch");
    int flood = !steady && !watching;
    int own = steady ? 8 : 7;
    if (count < own) die("usage", "too few arguments, see the comment at the start of acks.c");
    long partitions = atol(arguments[4]);
    size = atol(arguments[5]);
    start(arguments[2], arguments[3], arguments + own, count - own);
    signal(SIGTERM, on_stop);
    pthread_t thread;
    pthread_create(&thread, NULL, deliver, NULL);
    long records = flood ? atol(arguments[6]) : steady ? (long)(atof(arguments[6]) * atof(arguments[7])) : 0;
    double *sent = NULL;
    if (steady) sent = calloc(records, sizeof *sent), latencies = calloc(records, sizeof *latencies);
    double began = now();
    if (flood)
        for (long i = 0; i < records; i++) send_one(RD_KAFKA_PARTITION_UA, NULL);
    else
        records = stream(partitions, atof(arguments[6]), records, sent);
    double deadline = now() + DRAIN_TIMEOUT_S;
    while (rd_kafka_outq_len(client) > 0) { /* rd_kafka_flush() would also run delivery callbacks in this thread */
        if (now() > deadline) die("drain", "not everything was acknowledged in time");
        pause_ms(1);
    }
    double seconds = now() - began;
    done = 1;
    pthread_join(thread, NULL);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_utime.tv_usec / 1e6 + used.ru_stime.tv_sec + used.ru_stime.tv_usec / 1e6;
    printf("{\"seconds\": %.6f, \"records\": %ld, \"failed\": %ld, \"client_cpu_s\": %.3f", seconds, records, failed, cpu);
    if (steady && acked) {
        qsort(latencies, acked, sizeof *latencies, ascending);
        printf(", \"p50\": %.6f, \"p99\": %.6f, \"p999\": %.6f, \"max\": %.6f", latencies[acked / 2], latencies[(long)(acked * .99)],
               latencies[(long)(acked * .999)], latencies[acked - 1]);
    }
    puts("}");
    return failed != 0;
}
