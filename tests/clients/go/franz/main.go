// A producer, a group's members and an administrator on franz-go, run by tests/clients/test_go_clients.py.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ottla.dev/tests/clients/program"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	switch command {
	case "produce":
		produce(ctx, bootstrap, topic, os.Args[4], program.Number(os.Args[5]))
	case "group":
		group(ctx, bootstrap, topic, os.Args[4], program.Number(os.Args[5]), program.Number(os.Args[6]))
	case "copy":
		copyTopic(ctx, bootstrap, topic, os.Args[4], os.Args[5], program.Number(os.Args[6]))
	case "admin":
		admin(ctx, bootstrap, topic)
	default:
		log.Fatalf("no such command: %s", command)
	}
}

func produce(ctx context.Context, bootstrap, topic, codec string, count int) {
	client := open(bootstrap, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[codec]))
	defer client.Close()
	for i := range count {
		record := &kgo.Record{Key: []byte(strconv.Itoa(i)), Value: fmt.Appendf(nil, "%s %d", codec, i)}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) { program.Must(err) })
	}
	program.Must(client.Flush(ctx))
}

func group(ctx context.Context, bootstrap, topic, name string, members, count int) {
	var running sync.WaitGroup
	var lock sync.Mutex
	seen := map[string]bool{}
	reading, finish := context.WithCancel(ctx)
	for member := range members {
		client := open(bootstrap, kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchMaxWait(100*time.Millisecond), kgo.DisableAutoCommit())
		running.Add(1)
		go func() {
			defer running.Done()
			for reading.Err() == nil {
				client.PollFetches(reading).EachRecord(func(record *kgo.Record) {
					lock.Lock()
					defer lock.Unlock()
					program.Print(map[string]any{"member": member, "partition": record.Partition, "offset": record.Offset, "key": string(record.Key), "value": string(record.Value)})
					if seen[fmt.Sprint(record.Partition, record.Offset)] = true; len(seen) >= count {
						finish()
					}
				})
			}
			program.Must(client.CommitUncommittedOffsets(ctx))
			client.Close()
		}()
	}
	running.Wait()
	finish()
	program.Must(ctx.Err())
}

// copyTopic copies count records of a topic to another one, exactly once: the first transaction is aborted.
func copyTopic(ctx context.Context, bootstrap, topic, target, id string, count int) {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), kgo.ConsumerGroup(id),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic(target),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(), kgo.FetchMaxWait(100*time.Millisecond))
	program.Must(err)
	defer session.Close()
	copied, transactions := 0, 0
	for copied < count {
		fetches := session.PollFetches(ctx)
		program.Must(ctx.Err())
		if fetches.NumRecords() == 0 {
			continue
		}
		program.Must(session.Begin())
		promise := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Key: record.Key, Value: record.Value}, promise.Promise())
		})
		committed, err := session.End(ctx, kgo.TransactionEndTry(promise.Err() == nil && transactions > 0))
		program.Must(err)
		if transactions++; committed {
			copied += fetches.NumRecords()
		}
	}
	program.Print(map[string]any{"copied": copied, "transactions": transactions})
}

func admin(ctx context.Context, bootstrap, topic string) {
	client := open(bootstrap)
	defer client.Close()
	asks := kadm.NewClient(client)
	topics := []string{topic}
	value := "86400000"
	_, err := asks.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &value}, topic)
	program.Must(err)
	program.Must(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 0, Key: []byte("k"), Value: []byte("v")}).FirstErr())
	grown, err := asks.CreatePartitions(ctx, 2, topic)
	program.Must(err)
	program.Must(grown.Error())
	altered, err := asks.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.ms", Value: &value}}, topic)
	program.Must(err)
	program.Must(altered[0].Err)
	described, err := asks.DescribeTopicConfigs(ctx, topics...)
	program.Must(err)
	settings := map[string]string{}
	for _, each := range described[0].Configs {
		settings[each.Key] = each.MaybeValue()
	}
	ends, err := asks.ListEndOffsets(ctx, topics...)
	program.Must(err)
	written := int64(0)
	before := kadm.Offsets{}
	ends.Each(func(each kadm.ListedOffset) {
		written += each.Offset
		before.Add(kadm.Offset{Topic: topic, Partition: each.Partition, At: each.Offset})
	})
	deleted, err := asks.DeleteRecords(ctx, before)
	program.Must(err)
	program.Must(deleted.Error())
	starts, err := asks.ListStartOffsets(ctx, topics...)
	program.Must(err)
	left := written
	starts.Each(func(each kadm.ListedOffset) { left -= each.Offset })
	metadata, err := asks.Metadata(ctx, topics...)
	program.Must(err)
	gone, err := asks.DeleteTopics(ctx, topics...)
	program.Must(err)
	program.Must(gone.Error())
	program.Print(map[string]any{"partitions": len(metadata.Topics[topic].Partitions), "retention.ms": settings["retention.ms"],
		"segment.ms": settings["segment.ms"], "written": written, "left": left, "brokers": len(metadata.Brokers)})
}

func open(bootstrap string, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap))...)
	program.Must(err)
	return client
}
