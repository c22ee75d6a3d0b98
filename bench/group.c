/* A consumer group of many members that reads a steady stream, on librdkafka.
 *
 *   group BOOTSTRAP PID TOPIC PARTITIONS MEMBERS PER_S WARM_S SECONDS
 *
 * MEMBERS consumers of one group subscribe to the topic, which is empty. When every partition has an owner, one producer (linger.ms=0,
 * acks=all) sends PER_S records of 100 bytes a second to the partitions in turn, at times that are fixed in advance. A record starts
 * with its number. One thread takes what all members receive. Records of the first WARM_S seconds are not counted. Prints one line of
 * JSON: seconds until every partition had an owner, records received per second, median and 99th percentile of the times from when a
 * record was due until it is received, in ms, the processor time of process PID (user and system) for each record in µs, and the
 * processor time of this program, in s.
 */
#define PROGRAM "group"
#include "common.h"
#include "sockets.h"

#include <pthread.h>
#include <unistd.h>

#define SIZE 100
#define STARTS_WITHIN_S 120
#define DRAIN_TIMEOUT_S 30

static rd_kafka_queue_t *received;
static double *seen;
static long records;
static volatile long reads;
static volatile int done;

static void *take_records(void *unused) {
    while (!done) {
        rd_kafka_message_t *message = rd_kafka_consume_queue(received, 100);
        if (!message) continue;
        long number;
        if (!message->err && message->len >= sizeof number) {
            memcpy(&number, message->payload, sizeof number);
            if (number >= 0 && number < records && !seen[number]) seen[number] = now(), reads++;
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
    } else {
        set(conf, "group.id", "bench-group");
        set(conf, "auto.offset.reset", "earliest");
    }
    return new_client(type, conf);
}

static rd_kafka_t *join(const char *bootstrap, const char *topic) {
    rd_kafka_t *member = create_client(RD_KAFKA_CONSUMER, bootstrap);
    rd_kafka_poll_set_consumer(member);
    rd_kafka_queue_t *own = rd_kafka_queue_get_consumer(member);
    rd_kafka_queue_forward(own, received);
    rd_kafka_queue_destroy(own);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t error = rd_kafka_subscribe(member, topics);
    if (error) die("subscribe", rd_kafka_err2str(error));
    rd_kafka_topic_partition_list_destroy(topics);
    return member;
}

static long count_assigned(rd_kafka_t **members, int count) {
    long assigned = 0;
    for (int i = 0; i < count; i++) {
        rd_kafka_topic_partition_list_t *own;
        if (rd_kafka_assignment(members[i], &own)) continue;
        assigned += own->cnt;
        rd_kafka_topic_partition_list_destroy(own);
    }
    return assigned;
}

int main(int count, char **arguments) {
    if (count != 9) die("usage", "group BOOTSTRAP PID TOPIC PARTITIONS MEMBERS PER_S WARM_S SECONDS");
    long partitions = atol(arguments[4]);
    int size = atoi(arguments[5]);
    double per_s = atof(arguments[6]), warm_s = atof(arguments[7]), seconds = atof(arguments[8]);
    clockid_t broker_clock = processor_clock(arguments[2]);
    records = (long)(per_s * (warm_s + seconds));
    seen = calloc(records, sizeof *seen);
    rd_kafka_t *producer = create_client(RD_KAFKA_PRODUCER, arguments[1]), **members = calloc(size, sizeof *members);
    received = rd_kafka_queue_new(producer);
    pthread_t taking;
    pthread_create(&taking, NULL, take_records, NULL);
    double joining = now();
    for (int i = 0; i < size; i++) members[i] = join(arguments[1], arguments[3]);
    while (count_assigned(members, size) != partitions) {
        if (now() > joining + STARTS_WITHIN_S) die("group", "some partition has no owner after two minutes");
        pause_ms(5);
    }
    double joined = now() - joining, broker_s = 0, own_s = 0, began = now(), measured_from = 0;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, arguments[3], NULL);
    char payload[SIZE] = {0};
    long first = (long)(per_s * warm_s);
    for (long i = 0; i < records; i++) {
        double due = began + i / per_s;
        struct timespec at = {(time_t)due, (long)((due - (time_t)due) * 1e9)};
        if (due > now()) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        if (i == first) measured_from = now(), broker_s = processor_s(broker_clock), own_s = processor_s(CLOCK_PROCESS_CPUTIME_ID);
        memcpy(payload, &i, sizeof i);
        while (rd_kafka_produce(topic, i % partitions, RD_KAFKA_MSG_F_COPY, payload, SIZE, NULL, 0, NULL) == -1) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
            pause_ms(1);
        }
        rd_kafka_poll(producer, 0);
    }
    for (double deadline = now() + DRAIN_TIMEOUT_S; reads < records && now() < deadline; pause_ms(1)) rd_kafka_poll(producer, 0);
    double took = now() - measured_from;
    broker_s = processor_s(broker_clock) - broker_s, own_s = processor_s(CLOCK_PROCESS_CPUTIME_ID) - own_s;
    if (reads < records) die("records", "some were not received within 30 s");
    done = 1;
    pthread_join(taking, NULL);
    double *latencies = calloc(records, sizeof *latencies);
    for (long i = first; i < records; i++) latencies[i - first] = (seen[i] - (began + i / per_s)) * 1e3;
    printf("{\"start\": %.6f, \"clients\": ", joined);
    print_clients(took, latencies, records - first, broker_s, own_s);
    puts("}");
    fflush(stdout);
    _exit(0); /* leaving one after the other would rebalance the group once for each member */
}
