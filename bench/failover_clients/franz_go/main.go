// franz-go. Says what lines.py tells of.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const every = 5 * time.Millisecond

var mutex sync.Mutex

func say(event string, sent int64) {
	mutex.Lock()
	defer mutex.Unlock()
	fmt.Println(event, sent, time.Now().UnixNano())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func options(id string) []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ClientID(id)}
	if slices.Contains(os.Args, "--debug") {
		prefix := func() string { return time.Now().Format("15:04:05.000000 ") + id + " " }
		options = append(options, kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelDebug, prefix)))
	}
	return options
}

func read(topic string) {
	from := []kgo.Opt{kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtEnd()}})}
	if slices.Contains(os.Args, "--group=classic") {
		from = []kgo.Opt{kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd())}
	}
	client, err := kgo.NewClient(append(options("reader"), from...)...)
	check(err)
	for {
		client.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			sent, err := strconv.ParseInt(strings.TrimSpace(string(record.Value)), 10, 64)
			check(err)
			say("read", sent)
		})
	}
}

func main() {
	topic := os.Args[2]
	go read(topic)
	client, err := kgo.NewClient(append(options("writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	check(err)
	for range time.Tick(every) {
		sent := time.Now().UnixNano()
		record := &kgo.Record{Topic: topic, Partition: 0, Value: fmt.Appendf(nil, "%-100d", sent)}
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err == nil {
				say("acknowledged", sent)
			}
		})
	}
}
