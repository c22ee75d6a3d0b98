/* Produces or consumes through librdkafka, with no interpreter in between.
 *
 *   load produce BOOTSTRAP TOPIC PARTITIONS RECORDS SIZE BYTES_PER_S KEYS [setting=value…]   to the partitions in turn
 *   load consume BOOTSTRAP TOPIC PARTITIONS RECORDS CONSUMERS [setting=value…]               from the start of all partitions
 *   load version                                                                             prints librdkafka's version
 *
 * BYTES_PER_S 0: as fast as possible. KEYS 0: without keys, else that many different ones in turn. Each consumer reads RECORDS.
 * Prints one line of JSON: seconds, records, bytes of payload moved in these seconds, records that failed, and the processor
 * seconds of this program. The clock of consumers starts with the first batch that any of them has; each one's first batch is
 * not in the bytes. Exits with 1 if a record failed or a consumer has read less than RECORDS after two minutes.
 */
#define PROGRAM "load"
#include "common.h"

#include <pthread.h>
#include <sys/resource.h>

#define BATCH 10000
#define DRAIN_TIMEOUT_S 120

static const char *bootstrap, *topic;
static char **settings;
static int setting_count;
static long records, partitions;
static volatile long failed;

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) failed++;
}

static rd_kafka_t *start(rd_kafka_type_t type) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    if (type == RD_KAFKA_CONSUMER) {
        set(conf, "group.id", "bench");
        set(conf, "enable.auto.commit", "false");
        /* With the default, 100,000, a consumer that has fetched faster than it reads rests for a second. */
        set(conf, "queued.min.messages", "1000000");
    } else {
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    }
    set_all(conf, settings, setting_count);
    return new_client(type, conf);
}

static void report(double seconds, long count, double bytes) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_utime.tv_usec / 1e6 + used.ru_stime.tv_sec + used.ru_stime.tv_usec / 1e6;
    printf("{\"seconds\": %.6f, \"records\": %ld, \"bytes\": %.0f, \"failed\": %ld, \"client_cpu_s\": %.3f}\n", seconds, count,
           bytes, failed, cpu);
}

static void produce(long size, double bytes_per_s, long keys) {
    rd_kafka_t *client = start(RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(client, topic, NULL);
    const struct rd_kafka_metadata *metadata; /* connects and finds the leader before the clock starts */
    rd_kafka_resp_err_t known = rd_kafka_metadata(client, 0, rkt, &metadata, 30000);
    if (known) die("metadata", rd_kafka_err2str(known));
    rd_kafka_metadata_destroy(metadata);
    char *payload = malloc(size);
    srand(1);
    for (long i = 0; i < size; i++) payload[i] = rand();
    double began = now();
    for (long i = 0; i < records; i++) {
        if (bytes_per_s > 0)
            while (i * size / bytes_per_s > now() - began) rd_kafka_poll(client, 1);
        long key = keys ? i % keys : 0;
        /* Without a flag, librdkafka neither copies nor frees the payload. It copies the key. */
        while (rd_kafka_produce(rkt, i % partitions, 0, payload, size, keys ? &key : NULL, keys ? sizeof key : 0, NULL) == -1) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(client, 10);
        }
        if (i % 1000 == 0) rd_kafka_poll(client, 0);
    }
    if (rd_kafka_flush(client, DRAIN_TIMEOUT_S * 1000)) die("flush", "not everything was acknowledged in time");
    report(now() - began, records, (double)records * size);
}

struct reader {
    pthread_t thread;
    long seen;
    double bytes;
    double first_at;    /* when the first batch had arrived, and its bytes: connecting is not measured */
    double first_bytes;
};

static void *consume(void *argument) {
    struct reader *self = argument;
    rd_kafka_t *client = start(RD_KAFKA_CONSUMER);
    rd_kafka_topic_partition_list_t *from = rd_kafka_topic_partition_list_new(partitions);
    for (long i = 0; i < partitions; i++) rd_kafka_topic_partition_list_add(from, topic, i)->offset = 0;
    rd_kafka_assign(client, from);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    rd_kafka_message_t **batch = malloc(BATCH * sizeof *batch);
    double deadline = now() + DRAIN_TIMEOUT_S;
    while (self->seen < records && now() < deadline) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 100, batch, BATCH);
        for (ssize_t i = 0; i < count; i++) {
            if (batch[i]->err) {
                failed++;
            } else {
                self->seen++;
                self->bytes += batch[i]->len;
            }
            rd_kafka_message_destroy(batch[i]);
        }
        if (count > 0 && !self->first_at) self->first_at = now(), self->first_bytes = self->bytes;
    }
    return NULL; /* no rd_kafka_destroy(): closing would be measured, and the process exits anyway */
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "version")) return puts(rd_kafka_version_str()) < 0;
    if (count < 7) die("usage", "load produce|consume BOOTSTRAP TOPIC PARTITIONS RECORDS …, see the comment at the start of load.c");
    bootstrap = arguments[2], topic = arguments[3], partitions = atol(arguments[4]), records = atol(arguments[5]);
    if (!strcmp(arguments[1], "produce")) {
        if (count < 9) die("usage", "load produce BOOTSTRAP TOPIC PARTITIONS RECORDS SIZE BYTES_PER_S KEYS [setting=value…]");
        settings = arguments + 9, setting_count = count - 9;
        produce(atol(arguments[6]), atof(arguments[7]), atol(arguments[8]));
        return failed != 0;
    }
    int readers = atoi(arguments[6]);
    settings = arguments + 7, setting_count = count - 7;
    struct reader *all = calloc(readers, sizeof *all);
    double began = 0, bytes = 0;
    long seen = 0;
    for (int i = 0; i < readers; i++) pthread_create(&all[i].thread, NULL, consume, &all[i]);
    for (int i = 0; i < readers; i++) {
        pthread_join(all[i].thread, NULL);
        seen += all[i].seen, bytes += all[i].bytes - all[i].first_bytes;
        if (!began || all[i].first_at < began) began = all[i].first_at;
    }
    report(now() - began, seen, bytes);
    return seen < records * readers;
}
