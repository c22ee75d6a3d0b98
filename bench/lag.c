/* Time until a record that one cluster receives is readable at the same or another one.
 *
 *   lag SOURCE TOPIC TARGET TARGET_TOPIC PARTITIONS SIZE PER_S WARM_UP_S SECONDS
 *
 * One thread produces a steady stream to the partitions in turn (librdkafka's defaults, but linger.ms=0 and acks=all), one handles
 * delivery reports, one reads the target from its current end. A record starts with its number. Prints one line of JSON, times in
 * seconds. The first WARM_UP_S are not counted. p50, p99, p999 and max run from a record's acknowledgement; a record that is readable
 * before its delivery report counts as 0. e2e_* run from the time at which the record was due, which is fixed in advance: a record
 * that had to wait before it was sent counts with its wait (no coordinated omission). `seconds` run until the last record was read.
 */
#define PROGRAM "lag"
#include "common.h"

#include <pthread.h>

#define DRAIN_TIMEOUT_S 60
#define LEADERS_WITHIN_S 30

static rd_kafka_t *producer, *consumer;
static double *acked, *seen;
static long records;
static volatile long acks, reads, failed, duplicates;
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

static void *poll_delivery_reports(void *unused) {
    while (!done) rd_kafka_poll(producer, 100);
    return unused;
}

static void *read_target(void *unused) {
    while (!done) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 100);
        if (!message) continue;
        long number;
        if (!message->err && message->len >= sizeof number) {
            memcpy(&number, message->payload, sizeof number);
            if (number >= 0 && number < records) {
                if (seen[number]) duplicates++;
                else seen[number] = now(), reads++;
            }
        }
        rd_kafka_message_destroy(message);
    }
    return unused;
}

static rd_kafka_t *create_client(rd_kafka_type_t type, const char *bootstrap) {
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
    return new_client(type, conf);
}

static void print_percentiles(const char *prefix, double *values, long count) {
    qsort(values, count, sizeof *values, ascending);
    printf(", \"%sp50\": %.6f, \"%sp99\": %.6f, \"%sp999\": %.6f, \"%smax\": %.6f", prefix, values[count / 2], prefix,
           values[(long)(count * .99)], prefix, values[(long)(count * .999)], prefix, values[count - 1]);
}

int main(int count, char **arguments) {
    if (count != 10) die("usage", "lag SOURCE TOPIC TARGET TARGET_TOPIC PARTITIONS SIZE PER_S WARM_UP_S SECONDS");
    long partitions = atol(arguments[5]), size = atol(arguments[6]);
    double per_s = atof(arguments[7]), warm_up_s = atof(arguments[8]), seconds = atof(arguments[9]);
    records = (long)(per_s * (warm_up_s + seconds));
    acked = calloc(records, sizeof *acked), seen = calloc(records, sizeof *seen);
    char *payload = malloc(size);
    for (long i = 0; i < size; i++) payload[i] = rand();
    producer = create_client(RD_KAFKA_PRODUCER, arguments[1]);
    consumer = create_client(RD_KAFKA_CONSUMER, arguments[3]);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, arguments[2], NULL);
    rd_kafka_topic_partition_list_t *from = rd_kafka_topic_partition_list_new(partitions);
    for (long i = 0; i < partitions; i++) {
        int64_t low, high;
        rd_kafka_resp_err_t error;
        double deadline = now() + LEADERS_WITHIN_S;
        while ((error = rd_kafka_query_watermark_offsets(consumer, arguments[4], i, &low, &high, 30000)) ==
                   RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION && now() < deadline) /* the topic is new */
            pause_ms(10);
        if (error) die(arguments[4], rd_kafka_err2str(error));
        rd_kafka_topic_partition_list_add(from, arguments[4], i)->offset = high;
    }
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_assign(consumer, from);
    const struct rd_kafka_metadata *metadata; /* connects and finds the leaders before the first record is due */
    rd_kafka_resp_err_t known = rd_kafka_metadata(producer, 0, topic, &metadata, 30000);
    if (known) die("metadata", rd_kafka_err2str(known));
    rd_kafka_metadata_destroy(metadata);
    pthread_t acknowledging, reading;
    pthread_create(&acknowledging, NULL, poll_delivery_reports, NULL);
    pthread_create(&reading, NULL, read_target, NULL);
    double began = now();
    for (long i = 0; i < records; i++) {
        double due = began + i / per_s;
        struct timespec at = {(time_t)due, (long)((due - (time_t)due) * 1e9)};
        if (due > now()) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        memcpy(payload, &i, sizeof i);
        while (rd_kafka_produce(topic, i % partitions, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, &acked[i]) == -1) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
            pause_ms(1);
        }
    }
    double deadline = now() + DRAIN_TIMEOUT_S;
    while ((acks + failed < records || reads < acks) && now() < deadline) pause_ms(1);
    double took = now() - began;
    done = 1;
    pthread_join(acknowledging, NULL);
    pthread_join(reading, NULL);
    long first = (long)(per_s * warm_up_s), counted = 0;
    double *lags = calloc(records, sizeof *lags), *ends = calloc(records, sizeof *ends);
    for (long i = first; i < records; i++)
        if (acked[i] && seen[i]) {
            ends[counted] = seen[i] - (began + i / per_s);
            lags[counted++] = seen[i] > acked[i] ? seen[i] - acked[i] : 0;
        }
    printf("{\"records\": %ld, \"acked\": %ld, \"read\": %ld, \"twice\": %ld, \"failed\": %ld, \"seconds\": %.6f", records, acks, reads,
           duplicates, failed, took);
    if (counted) {
        print_percentiles("", lags, counted);
        print_percentiles("e2e_", ends, counted);
    }
    puts("}");
    return failed || reads < acks;
}
