// A producer, a group's members and an administrator on Sarama, run by tests/clients/test_go_clients.py.
// SARAMA_VERSION is the Kafka release that Sarama is configured with, which decides the versions of its requests (default: newest).
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"ottla.dev/tests/clients/program"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func main() {
	command, bootstrap, topic := os.Args[1], []string{os.Args[2]}, os.Args[3]
	settings := sarama.NewConfig()
	settings.Version = sarama.MaxVersion
	if told := os.Getenv("SARAMA_VERSION"); told != "" {
		version, err := sarama.ParseKafkaVersion(told)
		program.Must(err)
		settings.Version = version
	}
	settings.Producer.Return.Successes = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Idempotent = true
	settings.Net.MaxOpenRequests = 1 // required by Sarama for idempotent producers
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.MaxWaitTime = 100 * time.Millisecond
	switch command {
	case "produce":
		settings.Producer.Compression = codecs[os.Args[4]]
		produce(settings, bootstrap, topic, os.Args[4], program.Number(os.Args[5]))
	case "group":
		group(settings, bootstrap, topic, os.Args[4], program.Number(os.Args[5]), program.Number(os.Args[6]))
	case "admin":
		admin(settings, bootstrap, topic)
	default:
		log.Fatalf("no such command: %s", command)
	}
}

func produce(settings *sarama.Config, bootstrap []string, topic, codec string, count int) {
	producer, err := sarama.NewSyncProducer(bootstrap, settings)
	program.Must(err)
	var records []*sarama.ProducerMessage
	for i := range count {
		records = append(records, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(strconv.Itoa(i)), Value: sarama.StringEncoder(fmt.Sprintf("%s %d", codec, i))})
	}
	program.Must(producer.SendMessages(records))
	program.Must(producer.Close())
}

// A member of a group: it prints what it reads, and ends all members when that is enough.
type reader struct {
	member int
	read   func(member int, record *sarama.ConsumerMessage)
}

func (reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(record, "")
			r.read(r.member, record)
		case <-session.Context().Done():
			return nil
		}
	}
}

func group(settings *sarama.Config, bootstrap []string, topic, name string, members, count int) {
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reading, finish := context.WithCancel(limit)
	var lock sync.Mutex
	seen := map[string]bool{}
	read := func(member int, record *sarama.ConsumerMessage) {
		lock.Lock()
		defer lock.Unlock()
		program.Print(map[string]any{"member": member, "partition": record.Partition, "offset": record.Offset, "key": string(record.Key), "value": string(record.Value)})
		if seen[fmt.Sprint(record.Partition, record.Offset)] = true; len(seen) >= count {
			finish()
		}
	}
	var running sync.WaitGroup
	for member := range members {
		joined, err := sarama.NewConsumerGroup(bootstrap, name, settings)
		program.Must(err)
		running.Add(1)
		go func() {
			defer running.Done()
			for reading.Err() == nil {
				program.Must(joined.Consume(reading, []string{topic}, reader{member, read}))
			}
			program.Must(joined.Close()) // commits what was marked
		}()
	}
	running.Wait()
	program.Must(limit.Err())
	finish()
}

func admin(settings *sarama.Config, bootstrap []string, topic string) {
	client, err := sarama.NewClient(bootstrap, settings)
	program.Must(err)
	asks, err := sarama.NewClusterAdminFromClient(client)
	program.Must(err)
	value := "86400000"
	program.Must(asks.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &value}}, false))
	produce(settings, bootstrap, topic, "none", 1)
	program.Must(asks.CreatePartitions(topic, 5, nil, false))
	if settings.Version.IsAtLeast(sarama.V2_3_0_0) {
		program.Must(asks.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
			"segment.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}, false))
	} else { // configs that are not named are reset to their defaults
		program.Must(asks.AlterConfig(sarama.TopicResource, topic, map[string]*string{"segment.ms": &value, "retention.ms": &value}, false))
	}
	described, err := asks.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	program.Must(err)
	found := map[string]string{}
	for _, each := range described {
		found[each.Name] = each.Value
	}
	program.Must(client.RefreshMetadata(topic))
	partitions, err := client.Partitions(topic)
	program.Must(err)
	written, left := int64(0), int64(0)
	before := map[int32]int64{}
	for _, partition := range partitions {
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		program.Must(err)
		before[partition] = end
		written += end
	}
	program.Must(asks.DeleteRecords(topic, before))
	for _, partition := range partitions {
		start, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
		program.Must(err)
		left += before[partition] - start
	}
	brokers, _, err := asks.DescribeCluster()
	program.Must(err)
	program.Must(asks.DeleteTopic(topic))
	program.Must(asks.Close())
	program.Print(map[string]any{"partitions": len(partitions), "retention.ms": found["retention.ms"], "segment.ms": found["segment.ms"],
		"written": written, "left": left, "brokers": len(brokers)})
}
