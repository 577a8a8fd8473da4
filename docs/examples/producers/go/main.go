// Tell relume of demand on Kafka from Go, with segmentio/kafka-go.
//
//	go run . -servers localhost:9092 -model echo -count 12 -seconds 5
//
// It knows nothing but docs/reference/asyncapi.yaml. Its balancer is not Kafka's murmur2 but the client's own
// round robin, to show that nothing is lost by that: relume brings every event to the partition of its model.
// (Prefer &kafka.Murmur2Balancer{}: it saves that second record, and keeps the order of a model's events.)
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

type request struct {
	Model   string `json:"model"`
	Request string `json:"request"`
}

func newID() string {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		log.Fatal(err)
	}
	return hex.EncodeToString(raw)
}

// event is a CloudEvent in binary mode: attributes in headers, the data as the value, the model as the key.
func event(kind string, data request) (kafka.Message, error) {
	value, err := json.Marshal(data)
	if err != nil {
		return kafka.Message{}, err
	}
	headers := []kafka.Header{
		{Key: "ce_specversion", Value: []byte("1.0")},
		{Key: "ce_type", Value: []byte(kind)},
		{Key: "ce_source", Value: []byte("//acme.example/go")},
		{Key: "ce_id", Value: []byte(newID())},
		{Key: "content-type", Value: []byte("application/json")},
	}
	return kafka.Message{Key: []byte("model/" + data.Model), Value: value, Headers: headers}, nil
}

func send(ctx context.Context, writer *kafka.Writer, kind, model string, names []string) error {
	messages := make([]kafka.Message, 0, len(names))
	for _, name := range names {
		message, err := event(kind, request{Model: model, Request: name})
		if err != nil {
			return err
		}
		messages = append(messages, message)
	}
	return writer.WriteMessages(ctx, messages...)
}

func run() error {
	servers := flag.String("servers", "localhost:9092", "brokers, HOST:PORT[,HOST:PORT]")
	model := flag.String("model", "", "the model")
	count := flag.Int("count", 12, "requests in flight")
	seconds := flag.Float64("seconds", 5, "how long they run")
	flag.Parse()
	if *model == "" {
		return fmt.Errorf("give -model")
	}
	writer := &kafka.Writer{
		Addr:         kafka.TCP(strings.Split(*servers, ",")...),
		Topic:        "relume.requests",
		Balancer:     &kafka.RoundRobin{},
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: 10 * time.Millisecond,
	}
	defer writer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+time.Duration(*seconds*float64(time.Second)))
	defer cancel()
	names := make([]string, *count)
	for index := range names {
		names[index] = newID()
	}
	if err := send(ctx, writer, "relume.request.arrived.v1", *model, names); err != nil {
		return err
	}
	time.Sleep(time.Duration(*seconds * float64(time.Second)))
	return send(ctx, writer, "relume.request.finished.v1", *model, names)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
