import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.BrokerStatsData;
import org.apache.rocketmq.common.protocol.body.BrokerStatsItem;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.consumer.ConsumerSubCommand;
import org.apache.rocketmq.tools.command.message.DecodeMessageIdCommond;
import org.apache.rocketmq.tools.command.offset.GetConsumerStatusCommand;
import org.apache.rocketmq.tools.command.offset.ResetOffsetByTimeOldCommand;

/**
 * Many mqadmin commands, a producer and consumers in one JVM. A request is one line of fields between tabs, the answer one
 * line of JSON: {"out": what was printed} or {"error": why not}. A command that ends the JVM is seen by its missing answer.
 */
public final class MqadminHarness extends MQAdminStartup {
    private static final PrintStream STDOUT = System.out;
    private final String namesrv;
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, AtomicInteger> consumed = new ConcurrentHashMap<>();
    private DefaultMQProducer producer;
    private TransactionMQProducer transactions;
    private DefaultMQAdminExt admin;

    private MqadminHarness(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] args) {
        MqadminHarness harness = new MqadminHarness(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line : (Iterable<String>) in.lines()::iterator) {
            Map<String, Object> answer = new LinkedHashMap<>();
            long began = System.nanoTime();
            try {
                answer.put("out", harness.run(line.split("\t", -1)));
            } catch (Throwable e) {
                answer.put("error", e.toString());
            }
            answer.put("ms", (System.nanoTime() - began) / 1000000);
            STDOUT.println(JSON.toJSONString(answer));
            STDOUT.flush();
        }
        Runtime.getRuntime().halt(0); // monitors and clients need not wind down
    }

    private Object run(String[] fields) throws Exception {
        switch (fields[0]) {
            case "@produce": return produce(fields);
            case "@half": return half(fields);
            case "@consume": return consume(fields[1], fields[2]);
            case "@consumed": return consumed.getOrDefault(fields[1], new AtomicInteger()).get();
            case "@stop": consumers.remove(fields[1]).shutdown(); return null;
            case "@stats": return stats(fields[1], fields[2], fields[3]);
            case "@help": return command(new String[0], 30000);
            case "@for": return command(Arrays.copyOfRange(fields, 2, fields.length), Long.parseLong(fields[1]));
            default: return command(fields, 30000);
        }
    }

    /** One mqadmin command; interrupted after so many ms, for those that never end by themselves. */
    private String command(String[] arguments, long patienceMs) throws Exception {
        subCommandList.clear(); // commands keep state, and each start of the tool adds all again
        subCommandList.addAll(Arrays.asList(new ConsumerSubCommand(), new DecodeMessageIdCommond(),
            new GetConsumerStatusCommand(), new ResetOffsetByTimeOldCommand())); // upstream has them, but not in its list
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream sink = new PrintStream(bytes, true, "UTF-8"), err = System.err;
        System.setOut(sink);
        System.setErr(sink);
        try {
            Thread thread = new Thread(() -> main0(arguments, null), "mqadmin");
            thread.setDaemon(true);
            thread.start();
            thread.join(patienceMs);
            if (thread.isAlive()) {
                thread.interrupt();
                thread.join(5000);
            }
        } finally {
            System.setOut(STDOUT);
            System.setErr(err);
        }
        return bytes.toString("UTF-8");
    }

    /** What a broker counted: sum and average, over a minute, an hour and a day. */
    private Object stats(String broker, String name, String key) throws Exception {
        if (admin == null) {
            admin = new DefaultMQAdminExt();
            admin.setNamesrvAddr(namesrv);
            admin.setInstanceName("stats");
            admin.setHeartbeatBrokerInterval(1000);
            admin.start();
        }
        try {
            BrokerStatsData data = admin.viewBrokerStatsData(broker, name, key);
            List<Object> found = new ArrayList<>();
            for (BrokerStatsItem item : Arrays.asList(data.getStatsMinute(), data.getStatsHour(), data.getStatsDay())) {
                found.add(Arrays.asList(item.getSum(), item.getAvgpt()));
            }
            return found;
        } catch (MQClientException e) {
            return e.getErrorMessage();
        }
    }

    /** topic, queue, count, keys, tag, delay level: what was sent, as [msgId, offsetMsgId]. */
    private Object produce(String[] f) throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer("harness-producer");
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("producer");
            producer.setSendMsgTimeout(15000);
            producer.setHeartbeatBrokerInterval(1000);
            producer.start();
        }
        List<List<String>> ids = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(f[3]); i++) {
            Message message = new Message(f[1], f[5], f[4] + "-" + i, ("body-" + i).getBytes(StandardCharsets.UTF_8));
            message.setDelayTimeLevel(Integer.parseInt(f[6]));
            for (MessageQueue queue : producer.fetchPublishMessageQueues(f[1])) {
                if (queue.getQueueId() == Integer.parseInt(f[2])) {
                    SendResult sent = producer.send(message, queue);
                    ids.add(Arrays.asList(sent.getMsgId(), sent.getOffsetMsgId()));
                }
            }
        }
        return ids;
    }

    /** topic, count: transactions that are committed at once. */
    private Object half(String[] f) throws Exception {
        if (transactions == null) {
            transactions = new TransactionMQProducer("harness-transactions");
            transactions.setNamesrvAddr(namesrv);
            transactions.setInstanceName("transactions");
            transactions.setSendMsgTimeout(15000);
            transactions.setHeartbeatBrokerInterval(1000);
            transactions.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }
            });
            transactions.start();
        }
        for (int i = 0; i < Integer.parseInt(f[2]); i++) {
            transactions.sendMessageInTransaction(new Message(f[1], "half".getBytes(StandardCharsets.UTF_8)), null);
        }
        return null;
    }

    /** A consumer that gives back once, for a second, what is tagged "again". */
    private Object consume(String group, String topic) throws Exception {
        AtomicInteger count = consumed.computeIfAbsent(group, key -> new AtomicInteger());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(topic, "*");
        consumer.setMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            if ("again".equals(message.getTags()) && message.getReconsumeTimes() == 0) {
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            count.incrementAndGet();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(group, consumer);
        return Collections.singletonList(consumer.buildMQClientId());
    }
}
