// Command features does everything that the stock Go client can at once: java/Features.java says the orders and events.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	namesrv   string
	producers primitive.Credentials // of an account that sends
	consumers primitive.Credentials // of one that receives
	out       sync.Mutex
)

type event map[string]any

func tell(e event) {
	b, _ := json.Marshal(e)
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(b))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{namesrv})
}

func main() {
	namesrv = os.Args[1]
	if len(os.Args) > 2 {
		producers = primitive.Credentials{AccessKey: os.Args[2], SecretKey: os.Args[3]}
		consumers = primitive.Credentials{AccessKey: os.Args[4], SecretKey: os.Args[5]}
	}
	rlog.SetLogLevel("error")
	all := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	fine := func() consumer.ConsumeResult { return consumer.ConsumeSuccess }
	later := func() consumer.ConsumeResult { return consumer.ConsumeRetryLater }
	subscribe("transaction", "g-transaction", "transaction", all, fine)
	subscribe("ordered", "g-ordered", "ordered", all, fine, consumer.WithConsumerOrder(true))
	subscribe("delayed", "g-delayed", "delayed", all, fine)
	subscribe("tags", "g-tags", "filtered", consumer.MessageSelector{Type: consumer.TAG, Expression: "A || B"}, fine)
	subscribe("sql", "g-sql", "filtered", consumer.MessageSelector{Type: consumer.SQL92, Expression: "n > 2 AND kind = 'odd'"}, fine)
	subscribe("broadcast-1", "g-broadcast", "broadcast", all, fine, consumer.WithConsumerModel(consumer.BroadCasting))
	subscribe("broadcast-2", "g-broadcast", "broadcast", all, fine, consumer.WithConsumerModel(consumer.BroadCasting))
	subscribe("retry", "g-retry", "retry", all, later, consumer.WithMaxReconsumeTimes(2))
	subscribe("dead", "g-dead", "%DLQ%g-retry", all, fine)
	subscribe("reset", "g-reset", "reset", all, fine)
	subscribe("trace", "g-trace", "RMQ_SYS_TRACE_TOPIC", all, fine)
	plain := newProducer("p-plain")
	sharded := newProducer("p-sharded", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	traced := newProducer("p-traced", producer.WithTrace(&primitive.TraceConfig{Access: primitive.Local, Resolver: resolver(), Credentials: producers}))
	replier(newProducer("p-replies"))
	transactions, err := rocketmq.NewTransactionProducer(decisions{}, producer.WithNsResolver(resolver()), producer.WithGroupName("p-transactions"),
		producer.WithInstanceName("p-transactions"), producer.WithCredentials(producers))
	must(err)
	must(transactions.Start())
	tell(event{"event": "ready"})

	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		go func() {
			switch words[0] {
			case "quit":
				os.Exit(0)
			case "send":
				count, _ := strconv.Atoi(words[2])
				pauseMs, _ := strconv.Atoi(words[3])
				send(plain, sharded, traced, transactions, words[1], count, time.Duration(pauseMs)*time.Millisecond)
			case "late":
				subscribe("late", "g-late", "reset", all, fine)
			default:
				request(plain, words[1])
			}
			tell(event{"event": "done", "command": words[0]})
		}()
	}
}

func newProducer(group string, more ...producer.Option) rocketmq.Producer {
	made, err := rocketmq.NewProducer(append(more, producer.WithNsResolver(resolver()), producer.WithGroupName(group),
		producer.WithSendMsgTimeout(15*time.Second), producer.WithInstanceName(group), producer.WithCredentials(producers))...)
	must(err)
	must(made.Start())
	return made
}

func subscribe(name, group, topic string, selector consumer.MessageSelector, verdict func() consumer.ConsumeResult, more ...consumer.Option) {
	made, err := rocketmq.NewPushConsumer(append(more, consumer.WithGroupName(group), consumer.WithNsResolver(resolver()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithInstance("c-"+name),
		consumer.WithCredentials(consumers))...)
	must(err)
	must(made.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			body := string(m.Body)
			if name == "trace" {
				body = m.GetKeys()
			}
			tell(event{"event": "got", "by": name, "body": body, "times": m.ReconsumeTimes, "after": time.Now().UnixMilli() - m.BornTimestamp})
		}
		return verdict(), nil
	}))
	must(made.Start())
}

func replier(p rocketmq.Producer) {
	made, err := rocketmq.NewPushConsumer(consumer.WithGroupName("g-requests"), consumer.WithNsResolver(resolver()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithInstance("c-requests"),
		consumer.WithCredentials(consumers))
	must(err)
	all := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	must(made.Subscribe("requests", all, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			reply, err := consumer.CreateReplyMessage(m, nil)
			if err == nil {
				reply.Body = []byte("reply to " + string(m.Body))
				_, err = p.SendSync(ctx, reply)
			}
			if err != nil {
				tell(event{"event": "reply failed", "why": err.Error()})
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(made.Start())
}

// surely sends until it is SEND_OK: a broker may be away, and a slave may not be there yet.
func surely(body string, send func() (*primitive.SendResult, error)) {
	why := "not SEND_OK"
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		result, err := send()
		if err != nil {
			why = err.Error()
		} else if result.Status == primitive.SendOK {
			tell(event{"event": "sent", "body": body, "id": result.MsgID, "at": time.Now().UnixMilli()})
			return
		}
	}
	tell(event{"event": "not sent", "body": body, "why": why})
}

func send(plain, sharded, traced rocketmq.Producer, transactions rocketmq.TransactionProducer, phase string, count int, pause time.Duration) {
	ctx := context.Background()
	for i := 0; i < count; i++ {
		for _, topic := range []string{"ordered", "delayed", "filtered", "broadcast", "retry", "reset", "traced", "transaction"} {
			body := fmt.Sprintf("%s-%s-%d", topic, phase, i)
			by := plain
			surely(body, func() (*primitive.SendResult, error) {
				m := primitive.NewMessage(topic, []byte(body))
				switch topic {
				case "ordered":
					by = sharded
					m.WithShardingKey(strconv.Itoa(i % 3))
				case "delayed":
					m.WithDelayTimeLevel(2)
				case "filtered":
					m.WithTag([]string{"A", "B", "C"}[i%3])
					m.WithProperty("n", strconv.Itoa(i))
					m.WithProperty("kind", []string{"even", "odd"}[i%2])
				case "traced":
					by = traced
					m.WithKeys([]string{body})
				case "transaction":
					result, err := transactions.SendMessageInTransaction(ctx, m)
					if err != nil {
						return nil, err
					}
					return result.SendResult, nil
				}
				return by.SendSync(ctx, m)
			})
		}
		time.Sleep(pause)
	}
}

func request(p rocketmq.Producer, phase string) {
	why := ""
	for attempt := 0; attempt < 20; attempt++ {
		answer, err := p.Request(context.Background(), 3*time.Second, primitive.NewMessage("requests", []byte("request-"+phase)))
		if err == nil {
			tell(event{"event": "reply", "body": string(answer.Body)})
			return
		}
		why = err.Error()
		time.Sleep(300 * time.Millisecond)
	}
	tell(event{"event": "no reply", "why": why})
}

// decisions go by the number: commit, roll back, leave open and commit when asked, leave open and roll back.
type decisions struct{}

func number(body []byte) int {
	text := string(body)
	n, _ := strconv.Atoi(text[strings.LastIndex(text, "-")+1:])
	return n % 4
}

func (decisions) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	switch number(m.Body) {
	case 0:
		return primitive.CommitMessageState
	case 1:
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (decisions) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	tell(event{"event": "checked", "body": string(m.Body)})
	if n := number(m.Body); n == 0 || n == 2 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}
