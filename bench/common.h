/* Shared by the load programs: clock, pause, clients and their settings, exit with a message. PROGRAM is the including program's name. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double now(void) { /* CLOCK_MONOTONIC, seconds */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static inline void pause_ms(long ms) {
    struct timespec pause = {0, ms * 1000000};
    nanosleep(&pause, NULL);
}

static inline void die(const char *what, const char *why) {
    fprintf(stderr, PROGRAM ": %s: %s\n", what, why);
    exit(1);
}

static inline void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, key, value, error, sizeof error) != RD_KAFKA_CONF_OK) die(key, error);
}

static inline void set_all(rd_kafka_conf_t *conf, char **settings, int count) { /* each setting=value */
    for (int i = 0; i < count; i++) {
        char *pair = strdup(settings[i]), *equals = strchr(pair, '=');
        if (!equals) die(pair, "not of the form setting=value");
        *equals = 0;
        set(conf, pair, equals + 1);
        free(pair);
    }
}

static inline rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) { /* takes over conf */
    char error[512];
    rd_kafka_t *client = rd_kafka_new(type, conf, error, sizeof error);
    if (!client) die("rd_kafka_new", error);
    return client;
}

static inline int ascending(const void *a, const void *b) { /* compares two doubles, for qsort */
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}
