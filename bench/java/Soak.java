import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The clients of bench/soak.py: every kind of send at a steady rate, consumers that come and go.
 *
 *     Soak NAMESRV MESSAGES_PER_SECOND_OF_EACH_STREAM CHURN_SECONDS
 *
 * Prints tab-separated lines, which soak.py judges:
 *     S stream id STATUS                              a send was answered; ERROR when it failed
 *     R stream group id reconsume queue offset HOW    a message was consumed (ok) or given back (again)
 *     E what                                          a member of a group came or went
 * On stdin: `stop` ends the sends, `quit` everything.
 */
public final class Soak {
    private static final int SHARDS = 4;
    private static final BufferedWriter OUT =
        new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
    private static final AtomicInteger INSTANCES = new AtomicInteger();
    private static final List<DefaultMQPushConsumer> CONSUMERS = new ArrayList<>();
    private static volatile boolean isSending = true;
    private static volatile boolean isChurning = true;
    private static String namesrv;

    private interface Send {
        SendStatus send(String id, int serial) throws Exception;
    }

    private interface Join {
        DefaultMQPushConsumer join() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        double rate = Double.parseDouble(args[1]);
        long churnMs = (long) (Double.parseDouble(args[2]) * 1000);

        Join normal = () -> concurrent("normal", "g-normal", "soak-normal", null);
        Join retry = () -> concurrent("retry", "g-retry", "soak-retry", null);
        for (Join join : List.of(normal, normal, retry, (Join) Soak::orderly)) {
            CONSUMERS.add(join.join());
        }
        CONSUMERS.add(concurrent("delayed", "g-delayed", "soak-delayed", null));
        CONSUMERS.add(concurrent("txn", "g-txn", "soak-txn", null));
        CONSUMERS.add(concurrent("filtered", "g-tags", "soak-filtered", MessageSelector.byTag("A || C")));
        CONSUMERS.add(concurrent("filtered", "g-sql", "soak-filtered", MessageSelector.bySql("n > 5")));
        churn("normal", normal, churnMs);
        churn("ordered", Soak::orderly, churnMs);
        churn("retry", retry, churnMs);

        DefaultMQProducer plain = started(new DefaultMQProducer("p-soak"));
        TransactionMQProducer transactions = new TransactionMQProducer("p-soak-txn");
        transactions.setTransactionListener(new Decisions());
        started(transactions);
        List<Thread> senders = new ArrayList<>();
        senders.add(sender("normal", rate, (id, n) -> plain.send(message("soak-normal", null, id)).getSendStatus()));
        senders.add(sender("retry", rate, (id, n) -> plain.send(message("soak-retry", null, id)).getSendStatus()));
        senders.add(sender("ordered", rate, (id, n) -> plain.send(message("soak-ordered", null, id),
            (queues, message, shard) -> queues.get((Integer) shard % queues.size()), n % SHARDS).getSendStatus()));
        senders.add(sender("delayed", rate, (id, n) -> {
            Message message = message("soak-delayed", null, id);
            message.setDelayTimeLevel(1 + n % 2);
            return plain.send(message).getSendStatus();
        }));
        senders.add(sender("txn", rate,
            (id, n) -> transactions.sendMessageInTransaction(message("soak-txn", null, id), null).getSendStatus()));
        senders.add(sender("filtered", rate, (id, n) -> {
            Message message = message("soak-filtered", String.valueOf((char) ('A' + n % 4)), id);
            message.putUserProperty("n", String.valueOf(n % 10));
            return plain.send(message).getSendStatus();
        }));
        line("E", "ready");
        command("stop");
        isSending = false;
        for (Thread thread : senders) {
            thread.join();
        }
        isChurning = false;
        line("E", "stopped");
        command("quit");
        line("E", "over");
        Runtime.getRuntime().halt(0);
    }

    private static final Scanner IN = new Scanner(System.in);

    private static void command(String wanted) {
        while (IN.hasNextLine()) {
            if (IN.nextLine().equals(wanted)) {
                return;
            }
        }
    }

    private static synchronized void line(String... words) {
        try {
            OUT.write(String.join("\t", words));
            OUT.write('\n');
            OUT.flush();
        } catch (IOException gone) {
            Runtime.getRuntime().halt(1);
        }
    }

    // What the id says is what becomes of the message.

    private static String id(String stream, int n) {
        switch (stream) {
            case "txn":
                return stream + "-" + n + "-" + List.of("commit", "commit", "rollback", "check", "drop").get(n % 5);
            case "filtered":
                return stream + "-" + n + "-" + (char) ('A' + n % 4) + "-" + n % 10;
            case "ordered":
                return stream + "-" + n + "-" + n % SHARDS;
            default:
                return stream + "-" + n;
        }
    }

    private static LocalTransactionState decide(Message message, boolean isCheck) {
        String decision = new String(message.getBody(), StandardCharsets.UTF_8).split(" ", 2)[0].split("-")[2];
        switch (decision) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            case "check":
                return isCheck ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
            default:
                return isCheck ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    private static final class Decisions implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return decide(message, false);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return decide(message, true);
        }
    }

    private static Message message(String topic, String tags, String id) {
        StringBuilder body = new StringBuilder(id).append(' ');
        while (body.length() < 300) {
            body.append('x');
        }
        return new Message(topic, tags, id, body.toString().getBytes(StandardCharsets.UTF_8));
    }

    private static <P extends DefaultMQProducer> P started(P producer) throws Exception {
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("soak-" + INSTANCES.incrementAndGet());
        producer.setVipChannelEnabled(false);
        producer.setPollNameServerInterval(2000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        return producer;
    }

    private static Thread sender(String stream, double rate, Send send) {
        Thread thread = new Thread(() -> {
            long began = System.nanoTime();
            for (int n = 0; isSending; n++) {
                String id = id(stream, n);
                String status;
                try {
                    status = send.send(id, n).name();
                } catch (Exception failed) {
                    status = "ERROR";
                }
                line("S", stream, id, status);
                pause(began + (long) ((n + 1) * 1e9 / rate) - System.nanoTime());
            }
        }, "send-" + stream);
        thread.start();
        return thread;
    }

    private static void pause(long nanos) {
        if (nanos > 0) {
            try {
                Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("soak-" + INSTANCES.incrementAndGet());
        consumer.setVipChannelEnabled(false);
        consumer.setPollNameServerInterval(2000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        return consumer;
    }

    private static DefaultMQPushConsumer concurrent(String stream, String group, String topic, MessageSelector selector)
        throws Exception {
        DefaultMQPushConsumer consumer = consumer(group);
        if (selector == null) {
            consumer.subscribe(topic, "*");
        } else {
            consumer.subscribe(topic, selector);
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String id = idOf(message);
                boolean again = stream.equals("retry") && message.getReconsumeTimes() == 0 && id.hashCode() % 4 == 0;
                consumed(stream, group, message, id, again ? "again" : "ok");
                if (again) {
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static DefaultMQPushConsumer orderly() throws Exception {
        DefaultMQPushConsumer consumer = consumer("g-ordered");
        consumer.subscribe("soak-ordered", "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                consumed("ordered", "g-ordered", message, idOf(message), "ok");
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static String idOf(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8).split(" ", 2)[0];
    }

    private static void consumed(String stream, String group, MessageExt message, String id, String how) {
        line("R", stream, group, id, String.valueOf(message.getReconsumeTimes()),
            String.valueOf(message.getQueueId()), String.valueOf(message.getQueueOffset()), how);
    }

    private static void churn(String stream, Join join, long everyMs) {
        Thread thread = new Thread(() -> {
            while (isChurning) {
                try {
                    Thread.sleep(everyMs);
                    line("E", "join " + stream);
                    DefaultMQPushConsumer extra = join.join();
                    Thread.sleep(everyMs);
                    line("E", "leave " + stream);
                    extra.shutdown();
                } catch (Exception failed) {
                    line("E", "churn of " + stream + " failed: " + failed);
                }
            }
        }, "churn-" + stream);
        thread.setDaemon(true);
        thread.start();
    }
}
