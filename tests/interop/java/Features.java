import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Arguments: name server; then, where there is access control, access key and secret of the producers, and of the consumers.
 *
 * Every feature of the stock client at once, told what to do on stdin, one JSON line per event on stdout.
 *
 * send PHASE N MS  of each feature N messages, each until it is SEND_OK, a pause after each of the N; other orders are heard meanwhile
 * request PHASE    one request, and the reply that came
 * late             one more consumer, of a new group
 * quit
 *
 * Bodies are FEATURE-PHASE-I. The rules by which something must not arrive are in the test beside.
 */
public final class Features {
    private static String namesrv;
    private static RPCHook producers;
    private static RPCHook consumers;
    private static final List<DefaultMQPushConsumer> CONSUMERS = new ArrayList<>();
    private static final AtomicInteger INSTANCES = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        if (args.length > 1) {
            producers = new AclClientRPCHook(new SessionCredentials(args[1], args[2]));
            consumers = new AclClientRPCHook(new SessionCredentials(args[3], args[4]));
        }
        subscribe("transaction", "g-transaction", "transaction", null, Features::fine);
        orderly();
        subscribe("delayed", "g-delayed", "delayed", null, Features::fine);
        subscribe("tags", "g-tags", "filtered", MessageSelector.byTag("A || B"), Features::fine);
        subscribe("sql", "g-sql", "filtered", MessageSelector.bySql("n > 2 AND kind = 'odd'"), Features::fine);
        subscribe("broadcast-1", "g-broadcast", "broadcast", null, Features::fine);
        subscribe("broadcast-2", "g-broadcast", "broadcast", null, Features::fine);
        subscribe("retry", "g-retry", "retry", null, () -> ConsumeConcurrentlyStatus.RECONSUME_LATER);
        subscribe("dead", "g-dead", "%DLQ%g-retry", null, Features::fine);
        subscribe("reset", "g-reset", "reset", null, Features::fine);
        subscribe("trace", "g-trace", "RMQ_SYS_TRACE_TOPIC", null, Features::fine);
        DefaultMQProducer replies = producer(new DefaultMQProducer("p-replies", producers));
        replier(replies);
        DefaultMQProducer plain = producer(new DefaultMQProducer("p-plain", producers));
        DefaultMQProducer traced = producer(new DefaultMQProducer("p-traced", producers, true, null));
        TransactionMQProducer transactions = new TransactionMQProducer("p-transactions", producers);
        transactions.setTransactionListener(new Decisions());
        producer(transactions);
        System.out.println("{\"event\":\"ready\"}");

        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String[] words = in.nextLine().split(" ");
            if (words[0].equals("quit")) {
                break;
            }
            new Thread(() -> {
                try {
                    switch (words[0]) {
                        case "send":
                            send(plain, traced, transactions, words[1], Integer.parseInt(words[2]),
                                Integer.parseInt(words[3]));
                            break;
                        case "late":
                            subscribe("late", "g-late", "reset", null, Features::fine);
                            break;
                        default:
                            request(plain, words[1]);
                    }
                    System.out.println("{\"event\":\"done\",\"command\":\"" + words[0] + "\"}");
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }).start();
        }
        CONSUMERS.forEach(DefaultMQPushConsumer::shutdown);
        for (DefaultMQProducer item : List.of(replies, plain, traced, transactions)) {
            item.shutdown();
        }
        System.out.println("{\"event\":\"bye\"}");
        System.exit(0);
    }

    private static ConsumeConcurrentlyStatus fine() {
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    private static DefaultMQProducer producer(DefaultMQProducer made) throws Exception {
        made.setNamesrvAddr(namesrv);
        made.setInstanceName("i" + INSTANCES.incrementAndGet());
        made.setPollNameServerInterval(1000);
        made.setHeartbeatBrokerInterval(1000);
        made.setSendMsgTimeout(15000);
        made.start();
        return made;
    }

    private static DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group, consumers, new AllocateMessageQueueAveragely());
        made.setNamesrvAddr(namesrv);
        made.setInstanceName("i" + INSTANCES.incrementAndGet());
        made.setPollNameServerInterval(1000);
        made.setHeartbeatBrokerInterval(1000);
        made.setPersistConsumerOffsetInterval(1000);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setConsumeThreadMin(1);
        made.setConsumeThreadMax(2);
        CONSUMERS.add(made);
        return made;
    }

    private static void subscribe(
        String name, String group, String topic, MessageSelector selector,
        java.util.function.Supplier<ConsumeConcurrentlyStatus> verdict) throws Exception {
        DefaultMQPushConsumer made = consumer(group);
        if (selector == null) {
            made.subscribe(topic, "*");
        } else {
            made.subscribe(topic, selector);
        }
        if (name.startsWith("broadcast")) {
            made.setMessageModel(MessageModel.BROADCASTING);
        }
        if (name.equals("retry")) {
            made.setMaxReconsumeTimes(2);
        }
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> got(name, message));
            return verdict.get();
        });
        made.start();
    }

    private static void orderly() throws Exception {
        DefaultMQPushConsumer made = consumer("g-ordered");
        made.subscribe("ordered", "*");
        made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> got("ordered", message));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        made.start();
    }

    private static void replier(DefaultMQProducer producer) throws Exception {
        DefaultMQPushConsumer made = consumer("g-requests");
        made.subscribe("requests", "*");
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = ("reply to " + text(message)).getBytes(StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, body), 3000);
                } catch (Exception error) {
                    System.out.println("{\"event\":\"reply failed\"}");
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        made.start();
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static void got(String name, MessageExt message) {
        String body = name.equals("trace") ? String.valueOf(message.getKeys()) : text(message);
        System.out.println("{\"event\":\"got\",\"by\":\"" + name + "\",\"body\":\"" + body + "\",\"times\":"
            + message.getReconsumeTimes() + ",\"after\":" + (System.currentTimeMillis() - message.getBornTimestamp()) + "}");
    }

    private static void sent(String body, SendResult result) {
        System.out.println("{\"event\":\"sent\",\"body\":\"" + body + "\",\"id\":\"" + result.getMsgId()
            + "\",\"at\":" + System.currentTimeMillis() + "}");
    }

    /** Until it is SEND_OK: a broker may be away, and a slave may not be there yet. */
    private static void surely(String body, Callable<SendResult> send) throws Exception {
        long end = System.currentTimeMillis() + 60_000;
        Exception last = null;
        while (System.currentTimeMillis() < end) {
            try {
                SendResult result = send.call();
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    sent(body, result);
                    return;
                }
            } catch (Exception error) {
                last = error;
            }
            Thread.sleep(200);
        }
        System.out.println("{\"event\":\"not sent\",\"body\":\"" + body + "\",\"why\":\"" + String.valueOf(last).replaceAll("[\"\\\\\\n]", " ") + "\"}");
    }

    private static void send(
        DefaultMQProducer plain, DefaultMQProducer traced, TransactionMQProducer transactions,
        String phase, int count, int pauseMs) throws Exception {
        for (int i = 0; i < count; i++) {
            int number = i;
            for (String topic : List.of("ordered", "delayed", "filtered", "broadcast", "retry", "reset", "traced", "transaction")) {
                String body = topic + "-" + phase + "-" + i;
                Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
                switch (topic) {
                    case "ordered":
                        surely(body, () -> plain.send(message, (queues, m, shard) -> queues.get((Integer) shard), number % 3));
                        break;
                    case "delayed":
                        message.setDelayTimeLevel(2);
                        surely(body, () -> plain.send(message));
                        break;
                    case "filtered":
                        message.setTags(List.of("A", "B", "C").get(i % 3));
                        message.putUserProperty("n", String.valueOf(i));
                        message.putUserProperty("kind", i % 2 == 1 ? "odd" : "even");
                        surely(body, () -> plain.send(message));
                        break;
                    case "traced":
                        message.setKeys(body);
                        surely(body, () -> traced.send(message));
                        break;
                    case "transaction":
                        surely(body, () -> transactions.sendMessageInTransaction(message, null));
                        break;
                    default:
                        surely(body, () -> plain.send(message));
                }
            }
            Thread.sleep(pauseMs);
        }
    }

    private static void request(DefaultMQProducer producer, String phase) throws Exception {
        Exception last = null;
        for (int attempt = 0; attempt < 20; attempt++) {
            try {
                Message message = new Message("requests", ("request-" + phase).getBytes(StandardCharsets.UTF_8));
                System.out.println("{\"event\":\"reply\",\"body\":\"" + text(producer.request(message, 3000)) + "\"}");
                return;
            } catch (Exception error) {
                last = error;
                Thread.sleep(300);
            }
        }
        System.out.println("{\"event\":\"no reply\",\"why\":\"" + String.valueOf(last).replaceAll("[\"\\\\\\n]", " ") + "\"}");
    }

    /** By its number: commit, roll back, leave open and commit when asked, leave open and roll back. */
    private static final class Decisions implements TransactionListener {
        private static int number(Message message) {
            String body = text(message);
            return Integer.parseInt(body.substring(body.lastIndexOf('-') + 1)) % 4;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            switch (number(message)) {
                case 0:
                    return LocalTransactionState.COMMIT_MESSAGE;
                case 1:
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            System.out.println("{\"event\":\"checked\",\"body\":\"" + text(message) + "\"}");
            int number = number(message);
            return number == 0 || number == 2 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }
}
