// Command accounts is the stock Go client with any account, for brokers that refuse it something.
//
// An order is one line: what, access key (- for none), secret, then its own words; the answer is
// {"event": "done", "command": what, "out": ...}, or error in the place of out.
//
//	send HOW TOPIC BODY     sync, async, oneway, batch (of two), delayed, or transaction (of group p, committed at once)
//	many COUNT TOPIC BODY   so many one after the other; out: how many were SEND_OK
//	consume GROUP TOPIC     until the end; each message is an event "got"
//	pull GROUP TOPIC QUEUE  all of a queue, once; out: the bodies
//	create ADDRESS TOPIC    a topic, as an admin does
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	namesrv      string
	out          sync.Mutex
	instances    int
	producers    = map[string]rocketmq.Producer{}
	transactions = map[string]rocketmq.TransactionProducer{}
	all          = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
)

func tell(e map[string]any) {
	b, _ := json.Marshal(e)
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(b))
}

func main() {
	namesrv = os.Args[1]
	rlog.SetLogLevel("fatal")
	tell(map[string]any{"event": "ready"})
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		if words[0] == "quit" {
			return
		}
		answer := map[string]any{"event": "done", "command": words[0]}
		result, err := run(words)
		if err != nil {
			answer["error"] = err.Error()
		} else {
			answer["out"] = result
		}
		tell(answer)
	}
}

func run(words []string) (any, error) {
	account := primitive.Credentials{}
	if words[1] != "-" {
		account = primitive.Credentials{AccessKey: words[1], SecretKey: words[2]}
	}
	switch words[0] {
	case "send":
		return send(account, words[3], words[4], words[5])
	case "many":
		return many(account, words[3], words[4], words[5])
	case "consume":
		return true, consume(account, words[3], words[4])
	case "pull":
		return pull(account, words[3], words[4], words[5])
	case "create":
		return true, create(account, words[3], words[4])
	}
	return nil, errors.New(words[0])
}

func resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{namesrv})
}

// instance is a name of its own: clients of one name share a connection, and the first one's account.
func instance() string {
	instances++
	return "i" + strconv.Itoa(instances)
}

// producerOf is one that stays connected for each account.
func producerOf(account primitive.Credentials) (rocketmq.Producer, error) {
	key := account.AccessKey + account.SecretKey
	if made, ok := producers[key]; ok {
		return made, nil
	}
	made, err := rocketmq.NewProducer(producer.WithNsResolver(resolver()), producer.WithGroupName("p-plain"), producer.WithRetry(0),
		producer.WithSendMsgTimeout(15*time.Second),
		producer.WithInstanceName(instance()), producer.WithCredentials(account))
	if err == nil {
		err = made.Start()
	}
	producers[key] = made
	return made, err
}

func transactionsOf(account primitive.Credentials) (rocketmq.TransactionProducer, error) {
	key := account.AccessKey + account.SecretKey
	if made, ok := transactions[key]; ok {
		return made, nil
	}
	made, err := rocketmq.NewTransactionProducer(commits{}, producer.WithNsResolver(resolver()), producer.WithGroupName("p"),
		producer.WithSendMsgTimeout(15*time.Second), producer.WithRetry(0), producer.WithInstanceName(instance()),
		producer.WithCredentials(account))
	if err == nil {
		err = made.Start()
	}
	transactions[key] = made
	return made, err
}

func send(account primitive.Credentials, how, topic, body string) (any, error) {
	p, err := producerOf(account)
	if err != nil {
		return nil, err
	}
	message := primitive.NewMessage(topic, []byte(body))
	switch how {
	case "oneway":
		return true, p.SendOneWay(context.Background(), message)
	case "async":
		return async(p, message)
	case "batch":
		return status(p.SendSync(context.Background(), message, primitive.NewMessage(topic, []byte(body))))
	case "delayed":
		message.WithDelayTimeLevel(1)
	case "transaction":
		t, err := transactionsOf(account)
		if err != nil {
			return nil, err
		}
		result, err := t.SendMessageInTransaction(context.Background(), message)
		if err != nil {
			return nil, err
		}
		return status(result.SendResult, nil)
	}
	return status(p.SendSync(context.Background(), message))
}

func async(p rocketmq.Producer, message *primitive.Message) (any, error) {
	type outcome struct {
		result *primitive.SendResult
		err    error
	}
	told := make(chan outcome, 1)
	err := p.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
		told <- outcome{result, err}
	}, message)
	if err != nil {
		return nil, err
	}
	select {
	case o := <-told:
		return status(o.result, o.err)
	case <-time.After(20 * time.Second):
		return nil, errors.New("the callback was not called")
	}
}

func status(result *primitive.SendResult, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if result.Status != primitive.SendOK {
		return nil, fmt.Errorf("status %d", result.Status)
	}
	return "SEND_OK", nil
}

func many(account primitive.Credentials, count, topic, body string) (any, error) {
	p, err := producerOf(account)
	if err != nil {
		return nil, err
	}
	wanted, _ := strconv.Atoi(count)
	for i := 0; i < wanted; i++ {
		if _, err := status(p.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body+"-"+strconv.Itoa(i))))); err != nil {
			return i, err
		}
	}
	return wanted, nil
}

func consume(account primitive.Credentials, group, topic string) error {
	made, err := rocketmq.NewPushConsumer(consumer.WithGroupName(group), consumer.WithNsResolver(resolver()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithInstance(instance()), consumer.WithCredentials(account))
	if err != nil {
		return err
	}
	err = made.Subscribe(topic, all, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			tell(map[string]any{"event": "got", "by": group, "body": string(m.Body)})
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	return made.Start()
}

func pull(account primitive.Credentials, group, topic, queue string) (any, error) {
	made, err := rocketmq.NewPullConsumer(consumer.WithGroupName(group), consumer.WithNsResolver(resolver()),
		consumer.WithInstance(instance()), consumer.WithCredentials(account))
	if err != nil {
		return nil, err
	}
	if err = made.Subscribe(topic, all); err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	defer made.Shutdown()
	id, _ := strconv.Atoi(queue)
	where := &primitive.MessageQueue{Topic: topic, BrokerName: "broker-a", QueueId: id}
	result, err := made.PullFrom(context.Background(), where, 0, 32)
	if err != nil {
		return nil, err
	}
	bodies := []string{}
	if result.Status == primitive.PullFound {
		for _, m := range primitive.DecodeMessage(result.GetBody()) {
			bodies = append(bodies, string(m.Body))
		}
	}
	return bodies, made.UpdateOffset(where, result.NextBeginOffset)
}

// create says nothing of a refusal: the Go client does not look at the answer's code.
func create(account primitive.Credentials, address, topic string) error {
	made, err := admin.NewAdmin(admin.WithResolver(resolver()), admin.WithCredentials(account))
	if err != nil {
		return err
	}
	return made.CreateTopic(context.Background(), admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(address))
}

type commits struct{}

func (commits) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

func (commits) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}
