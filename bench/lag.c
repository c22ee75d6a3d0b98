/* How long after its acknowledgement at one cluster a record can be read at another.
 *
 *   lag SOURCE TOPIC TARGET TOPIC_THERE PARTITIONS SIZE PER_S WARM_S SECONDS
 *
 * One thread produces a steady stream to the partitions in turn (librdkafka's defaults, but linger.ms=0 and acks=all), one waits for the
 * acknowledgements, one reads the other cluster from its end on. A record begins with its number. Prints one line of JSON, times in
 * seconds: what came in the first WARM_S is not counted, and a record that was there before its acknowledgement was told counts as 0.
 */
#define PROGRAM "lag"
#include "common.h"

#include <pthread.h>

#define PATIENCE_S 60

static rd_kafka_t *producer, *consumer;
static double *acked, *seen;
static long records;
static volatile long acks, reads, failed, twice;
static volatile int done;

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) {
        failed++;
    } else {
        *(double *)message->_private = now();
        acks++;
    }
}

static void *wait_for_acks(void *nothing) {
    while (!done) rd_kafka_poll(producer, 100);
    return nothing;
}

static void *read_copies(void *nothing) {
    while (!done) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 100);
        if (!message) continue;
        long number;
        if (!message->err && message->len >= sizeof number) {
            memcpy(&number, message->payload, sizeof number);
            if (number >= 0 && number < records) {
                if (seen[number]) twice++;
                else seen[number] = now(), reads++;
            }
        }
        rd_kafka_message_destroy(message);
    }
    return nothing;
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *bootstrap) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    if (type == RD_KAFKA_PRODUCER) {
        set(conf, "linger.ms", "0");
        set(conf, "acks", "all");
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    } else {
        set(conf, "group.id", "bench-lag");
        set(conf, "enable.auto.commit", "false");
    }
    rd_kafka_t *made = rd_kafka_new(type, conf, error, sizeof error);
    if (!made) die("rd_kafka_new", error);
    return made;
}

int main(int count, char **words) {
    if (count != 10) die("usage", "lag SOURCE TOPIC TARGET TOPIC_THERE PARTITIONS SIZE PER_S WARM_S SECONDS");
    long partitions = atol(words[5]), size = atol(words[6]);
    double per_s = atof(words[7]), warm_s = atof(words[8]), seconds = atof(words[9]);
    records = (long)(per_s * (warm_s + seconds));
    acked = calloc(records, sizeof *acked), seen = calloc(records, sizeof *seen);
    char *payload = malloc(size);
    for (long i = 0; i < size; i++) payload[i] = rand();
    producer = client(RD_KAFKA_PRODUCER, words[1]);
    consumer = client(RD_KAFKA_CONSUMER, words[3]);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, words[2], NULL);
    rd_kafka_topic_partition_list_t *from = rd_kafka_topic_partition_list_new(partitions);
    for (long i = 0; i < partitions; i++) {
        int64_t low, high;
        rd_kafka_resp_err_t told = rd_kafka_query_watermark_offsets(consumer, words[4], i, &low, &high, 30000);
        if (told) die(words[4], rd_kafka_err2str(told));
        rd_kafka_topic_partition_list_add(from, words[4], i)->offset = high;
    }
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_assign(consumer, from);
    pthread_t acknowledging, reading;
    pthread_create(&acknowledging, NULL, wait_for_acks, NULL);
    pthread_create(&reading, NULL, read_copies, NULL);
    double began = now();
    for (long i = 0; i < records; i++) {
        double due = began + i / per_s;
        struct timespec at = {(time_t)due, (long)((due - (time_t)due) * 1e9)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        memcpy(payload, &i, sizeof i);
        while (rd_kafka_produce(topic, i % partitions, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, &acked[i]) == -1) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
            pause_ms(1);
        }
    }
    double patience = now() + PATIENCE_S;
    while ((acks + failed < records || reads < acks) && now() < patience) pause_ms(1);
    done = 1;
    pthread_join(acknowledging, NULL);
    pthread_join(reading, NULL);
    long first = (long)(per_s * warm_s), counted = 0;
    double *took = calloc(records, sizeof *took);
    for (long i = first; i < records; i++)
        if (acked[i] && seen[i]) took[counted++] = seen[i] > acked[i] ? seen[i] - acked[i] : 0;
    qsort(took, counted, sizeof *took, ascending);
    printf("{\"records\": %ld, \"acked\": %ld, \"read\": %ld, \"twice\": %ld, \"failed\": %ld", records, acks, reads, twice, failed);
    if (counted) printf(", \"p50\": %.6f, \"p99\": %.6f, \"max\": %.6f", took[counted / 2], took[(long)(counted * .99)], took[counted - 1]);
    puts("}");
    return failed || reads < acks;
}
