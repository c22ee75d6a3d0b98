/* Transactions of one producer through librdkafka, beside a read_committed consumer.
 *
 *   transact BOOTSTRAP TOPIC TRANSACTIONS RECORDS SIZE
 *
 * Writes RECORDS records of SIZE bytes to partition 0 in each transaction, waits for their acknowledgements, and commits; the clock
 * starts after a tenth of TRANSACTIONS. Prints one line of JSON: seconds, transactions, bytes of payload; of rd_kafka_commit_transaction
 * the median and the 99th percentile in ms; and the same of the lag: from the call to commit until the consumer has the transaction's
 * last record (0 if RECORDS is more than one: then nothing is consumed).
 */
#define PROGRAM "transact"
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>

#define TIMEOUT_MS 60000

static const char *bootstrap, *topic;
static long transactions, records, size, warm;
static double *commit_called, *lags;
static atomic_long consumed = -1; /* transactions; -1 until the consumer has started */

/* With a callback, rd_kafka_flush returns at the acknowledgement; without one, it looks every 10 ms. */
static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) die("delivery", rd_kafka_err2str(message->err));
}

static rd_kafka_t *start(rd_kafka_type_t type, const char *key, const char *value) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, key, value);
    if (type == RD_KAFKA_CONSUMER) set(conf, "group.id", "transact");
    else {
        set(conf, "linger.ms", "0"), set(conf, "queue.buffering.max.messages", "1000000");
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    }
    return new_client(type, conf);
}

static void check(rd_kafka_error_t *error, const char *what) {
    if (error) die(what, rd_kafka_error_string(error));
}

static void *consume(void *unused) { /* a record begins with the number of its transaction */
    (void)unused;
    rd_kafka_t *client = start(RD_KAFKA_CONSUMER, "isolation.level", "read_committed");
    rd_kafka_poll_set_consumer(client);
    rd_kafka_topic_partition_list_t *at = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(at, topic, 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_assign(client, at);
    rd_kafka_topic_partition_list_destroy(at);
    consumed = 0;
    while (consumed < transactions) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(client, TIMEOUT_MS);
        if (!message) die("consumer", "no record");
        if (message->err) die("consumer", rd_kafka_message_errstr(message));
        long number = *(long *)message->payload;
        lags[number] = (now() - commit_called[number]) * 1e3;
        rd_kafka_message_destroy(message);
        consumed++;
    }
    rd_kafka_consumer_close(client);
    rd_kafka_destroy(client);
    return NULL;
}

static double at_share(double *values, double share) { /* of the values after the warm-up, which it sorts */
    long count = transactions - warm;
    qsort(values + warm, count, sizeof *values, ascending);
    return values[warm + (long)(count * share)];
}

int main(int count, char **arguments) {
    if (count != 6) die("usage", "transact BOOTSTRAP TOPIC TRANSACTIONS RECORDS SIZE");
    bootstrap = arguments[1], topic = arguments[2];
    transactions = atol(arguments[3]), records = atol(arguments[4]), size = atol(arguments[5]), warm = transactions / 10;
    double *commits = calloc(transactions, sizeof *commits);
    commit_called = calloc(transactions, sizeof *commit_called), lags = calloc(transactions, sizeof *lags);
    char *payload = calloc(1, size);
    pthread_t consumer;
    int is_consumed = records == 1;
    if (is_consumed && pthread_create(&consumer, NULL, consume, NULL)) die("pthread_create", "failed");
    while (is_consumed && consumed < 0) pause_ms(1);

    rd_kafka_t *client = start(RD_KAFKA_PRODUCER, "transactional.id", topic);
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(client, topic, NULL);
    check(rd_kafka_init_transactions(client, TIMEOUT_MS), "init_transactions");
    double began = now();
    for (long i = 0; i < transactions; i++) {
        if (i == warm) {
            while (is_consumed && consumed < warm) pause_ms(1); /* the consumer's first fetch is not measured */
            began = now();
        }
        check(rd_kafka_begin_transaction(client), "begin_transaction");
        *(long *)payload = i;
        for (long j = 0; j < records; j++)
            while (rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, NULL)) rd_kafka_poll(client, 10);
        if (rd_kafka_flush(client, TIMEOUT_MS)) die("flush", "timed out");
        commit_called[i] = now();
        check(rd_kafka_commit_transaction(client, TIMEOUT_MS), "commit_transaction");
        commits[i] = (now() - commit_called[i]) * 1e3;
    }
    double seconds = now() - began;
    if (is_consumed) pthread_join(consumer, NULL);
    printf("{\"seconds\": %.6f, \"transactions\": %ld, \"bytes\": %.0f, ", seconds, transactions - warm,
           (double)(transactions - warm) * records * size);
    printf("\"commit_p50\": %.6f, \"commit_p99\": %.6f, ", at_share(commits, 0.5), at_share(commits, 0.99));
    printf("\"lag_p50\": %.6f, \"lag_p99\": %.6f}\n", at_share(lags, 0.5), at_share(lags, 0.99));
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(client);
    return 0;
}
