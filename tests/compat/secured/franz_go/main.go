// franz-go on a secured listener: what task.py tells of.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	longest = 30 * time.Second
	pause   = 100 * time.Millisecond
)

var task = map[string]string{}

// check ends the program with the name of the broker's refusal.
func check(err error) {
	if err == nil {
		return
	}
	var refused *kerr.Error
	if errors.As(err, &refused) {
		fmt.Println("error", refused.Message)
	} else {
		fmt.Println("error", err)
	}
	os.Exit(0)
}

func login() sasl.Mechanism {
	switch task["mechanism"] {
	case "PLAIN":
		return plain.Auth{User: task["username"], Pass: task["password"]}.AsMechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: task["password"]}.AsMechanism()
	case "SCRAM-SHA-256":
		return scramAuth().AsSha256Mechanism()
	default:
		return scramAuth().AsSha512Mechanism()
	}
}

func scramAuth() scram.Auth {
	return scram.Auth{User: task["username"], Pass: task["password"], IsToken: task["tokenauth"] == "true"}
}

func newClient(more ...kgo.Opt) *kgo.Client {
	pem, err := os.ReadFile(task["authority"])
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(task["bootstrap"], ",")...),
		kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}),
		kgo.SASL(login()),
		kgo.DefaultProduceTopic(task["topic"]),
	}
	client, err := kgo.NewClient(append(options, more...)...)
	check(err)
	return client
}

func send(ctx context.Context, client *kgo.Client, value string) {
	check(client.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr())
}

func describe(ctx context.Context) {
	client := newClient()
	defer client.Close()
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(task["topic"])
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, client)
	check(err)
	check(kerr.ErrorForCode(answer.Topics[0].ErrorCode))
	fmt.Println("partitions", len(answer.Topics[0].Partitions))
}

func work(ctx context.Context) {
	describe(ctx)
	plainly := newClient()
	for _, value := range []string{"0", "1", "2"} {
		send(ctx, plainly, value)
	}
	plainly.Close()
	writer := newClient(kgo.TransactionalID(task["topic"]))
	check(writer.BeginTransaction())
	send(ctx, writer, "aborted")
	check(writer.EndTransaction(ctx, kgo.TryAbort))
	check(writer.BeginTransaction())
	send(ctx, writer, "3")
	check(writer.EndTransaction(ctx, kgo.TryCommit))
	writer.Close()
	reader := newClient(kgo.ConsumerGroup(task["topic"]), kgo.ConsumeTopics(task["topic"]), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer reader.Close()
	for isDone := false; !isDone; {
		fetches := reader.PollFetches(ctx)
		check(fetches.Err())
		for _, record := range fetches.Records() {
			fmt.Println("read", string(record.Value))
			isDone = isDone || string(record.Value) == "3"
		}
	}
	check(reader.CommitUncommittedOffsets(ctx))
	fmt.Println("committed")
}

func stay(ctx context.Context, seconds float64) {
	client := newClient()
	defer client.Close()
	check(client.Ping(ctx)) // what is produced waits for brokers until the context ends, whatever they refuse
	count := 0
	for begun := time.Now(); count == 0 || time.Since(begun).Seconds() < seconds; count++ {
		send(ctx, client, "x")
		time.Sleep(pause)
	}
	fmt.Println("sent", count)
}

func main() {
	for _, argument := range os.Args[1:] {
		key, value, _ := strings.Cut(argument, "=")
		task[key] = value
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	switch task["story"] {
	case "work":
		work(ctx)
	case "list":
		describe(ctx)
	default:
		seconds, err := strconv.ParseFloat(task["seconds"], 64)
		check(err)
		stay(ctx, seconds)
	}
}
