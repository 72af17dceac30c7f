// franz-go: a consumer that starts at the beginning or at what its group has committed, with NoResetOffset; an
// idempotent producer with StopProducerOnDataLossDetected. Says what lines.py tells of.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const afterError = 2 * time.Second

func say(fields ...any) {
	words := make([]string, len(fields))
	for i, field := range fields {
		words[i] = strings.Join(strings.Fields(fmt.Sprint(field)), " ")
	}
	fmt.Println(strings.Join(words, "\t"))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// name is the code of a broker's refusal, or the type of the client's own error.
func name(err error) string {
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return refused.Message
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", err), "*kgo.")
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return module.Version
		}
	}
	return "?"
}

func main() {
	role, bootstrap, topic, group, last := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	say("version", "franz-go", version())
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...)}
	switch role {
	case "write":
		write(topic, append(options, kgo.StopProducerOnDataLossDetected(),
			kgo.RecordPartitioner(kgo.ManualPartitioner())))
		return
	case "read":
		options = append(options, kgo.ConsumeResetOffset(kgo.NoResetOffset()),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	case "commit":
		options = append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	case "resume":
		options = append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeStartOffset(kgo.NewOffset().AtCommitted()), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	read(client, last)
	if role == "commit" {
		check(client.CommitUncommittedOffsets(context.Background()))
		say("committed")
	}
}

func read(client *kgo.Client, last string) {
	var deadline time.Time // when a client that told an error is taken to stay
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := client.PollFetches(ctx)
		cancel()
		for _, failed := range fetches.Errors() {
			if errors.Is(failed.Err, context.DeadlineExceeded) {
				continue
			}
			if !deadline.IsZero() {
				say("stays")
				return
			}
			place := "-"
			var lost *kgo.ErrDataLoss
			if errors.As(failed.Err, &lost) {
				place = strconv.FormatInt(lost.ResetTo, 10)
			}
			say("told", name(failed.Err), place, failed.Err)
			deadline = time.Now().Add(afterError)
		}
		for _, record := range fetches.Records() {
			say("got", record.Offset, string(record.Value))
			deadline = time.Time{}
			if string(record.Value) == last {
				return
			}
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			say("stays")
			return
		}
	}
}

func write(topic string, options []kgo.Opt) {
	clients := map[string]*kgo.Client{}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		words := strings.Fields(commands.Text())
		count, err := strconv.Atoi(words[2])
		check(err)
		client := clients[words[0]]
		if client == nil {
			client, err = kgo.NewClient(options...)
			check(err)
			clients[words[0]] = client
		}
		for i := range count {
			value := fmt.Sprintf("%s-%d", words[1], i)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			record, err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 0, Value: []byte(value)}).First()
			cancel()
			if err != nil {
				say("failed", name(err), "-", err)
			} else {
				say("acked", record.Offset, value)
			}
		}
		say("done")
	}
}
