import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Clients with accounts. An order is one line: what, access key (- for none), secret, then its own words; the answer is
 * {"event": "done", "command": what, "out": ...}, or code and error in the place of out.
 */
public final class Acl {
    private static final PrintStream STDOUT = System.out;
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static String namesrv;

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        tell(Map.of("event", "ready"));
        for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            String[] words = line.split(" ");
            answer.put("event", "done");
            answer.put("command", words[0]);
            try {
                answer.put("out", run(words));
            } catch (Throwable e) {
                Throwable cause = e;
                while (!(cause instanceof MQBrokerException) && cause.getCause() != null) {
                    cause = cause.getCause();
                }
                answer.put("code", cause instanceof MQBrokerException ? ((MQBrokerException) cause).getResponseCode() : -1);
                answer.put("error", cause.toString());
            }
            tell(answer);
        }
        Runtime.getRuntime().halt(0); // clients need not wind down
    }

    private static void tell(Map<String, Object> event) {
        STDOUT.println(JSON.toJSONString(event));
        STDOUT.flush();
    }

    private static Object run(String[] words) throws Exception {
        if (words[0].equals("mqadmin")) {
            return mqadmin(Arrays.copyOfRange(words, 1, words.length));
        }
        RPCHook hook = words[1].equals("-") ? null : new AclClientRPCHook(new SessionCredentials(words[1], words[2]));
        String account = words[1] + words[2];
        switch (words[0]) {
            case "send": return producer(account, hook).send(new Message(words[3], "hi".getBytes())).getSendStatus();
            case "pull": return pull(hook, words[3], words[4], words[5]);
            case "consume": return consume(hook, words[3], words[4]);
            case "topic": return admin(hook, words[3], words[4]);
            case "retry": return retry(hook, words[3], words[4]);
            case "orderly": return orderly(hook, words[3], words[4]);
            case "transaction": return transaction(hook, words[3], words[4]);
            case "request": return request(account, hook, words[3], words[4]);
            case "trace": return trace(hook, words[3]);
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    /** One that stays connected for each account. */
    private static DefaultMQProducer producer(String account, RPCHook hook) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(account);
        if (producer == null) {
            producer = new DefaultMQProducer("p", hook);
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("producer" + PRODUCERS.size());
            producer.setSendMsgTimeout(15000);
            producer.setRetryTimesWhenSendFailed(0);
            producer.start();
            PRODUCERS.put(account, producer);
        }
        return producer;
    }

    private static Object pull(RPCHook hook, String group, String topic, String broker) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, hook);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("pull" + System.nanoTime());
        consumer.start();
        try {
            return consumer.pull(new MessageQueue(topic, broker, 0), "*", 0, 32).getPullStatus();
        } finally {
            consumer.shutdown();
        }
    }

    private static Object consume(RPCHook hook, String group, String topic) throws Exception {
        CountDownLatch arrived = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(hook, group, topic);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            arrived.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return within(20, consumer, arrived);
    }

    private static DefaultMQPushConsumer consumer(RPCHook hook, String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook,
            new org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("push" + System.nanoTime());
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static boolean within(int seconds, DefaultMQPushConsumer consumer, CountDownLatch arrived) throws Exception {
        consumer.start();
        try {
            return arrived.await(seconds, TimeUnit.SECONDS);
        } finally {
            consumer.shutdown();
        }
    }

    /** Gives the first message back, and waits until it comes again. */
    private static Object retry(RPCHook hook, String group, String topic) throws Exception {
        CountDownLatch again = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(hook, group, topic);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (messages.get(0).getReconsumeTimes() > 0) {
                again.countDown();
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        return within(30, consumer, again);
    }

    private static Object orderly(RPCHook hook, String group, String topic) throws Exception {
        CountDownLatch arrived = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(hook, group, topic);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            arrived.countDown();
            return ConsumeOrderlyStatus.SUCCESS;
        });
        return within(30, consumer, arrived);
    }

    /** One whose outcome is not known until the broker asks. */
    private static Object transaction(RPCHook hook, String group, String topic) throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        TransactionMQProducer producer = new TransactionMQProducer(group, hook);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("transaction" + System.nanoTime());
        producer.setSendMsgTimeout(15000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        try {
            producer.sendMessageInTransaction(new Message(topic, "paid".getBytes()), null);
            return asked.await(30, TimeUnit.SECONDS);
        } finally {
            producer.shutdown();
        }
    }

    /** Asks, and answers itself with the same account. */
    private static Object request(String account, RPCHook hook, String group, String topic) throws Exception {
        DefaultMQProducer producer = producer(account, hook);
        DefaultMQPushConsumer consumer = consumer(hook, group, topic);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    if (message.getProperty("CLUSTER") != null && message.getProperty("REPLY_TO_CLIENT") != null) {
                        producer.send(MessageUtil.createReplyMessage(message, "pong".getBytes()), 3000);
                    }
                }
            } catch (Exception e) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return new String(producer.request(new Message(topic, "ping".getBytes()), 20000).getBody());
        } finally {
            consumer.shutdown();
        }
    }

    private static Object trace(RPCHook hook, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("p", hook, true, null);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("traced" + System.nanoTime());
        producer.setSendMsgTimeout(15000);
        producer.start(); // and stays: its traces come a little later
        return producer.send(new Message(topic, "traced".getBytes())).getSendStatus();
    }

    private static Object admin(RPCHook hook, String address, String topic) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(hook);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("admin" + System.nanoTime());
        admin.start();
        try {
            admin.createAndUpdateTopicConfig(address, new TopicConfig(topic, 1, 1, 6));
            SubscriptionGroupConfig group = new SubscriptionGroupConfig();
            group.setGroupName("g-" + topic);
            admin.createAndUpdateSubscriptionGroupConfig(address, group);
            return true;
        } finally {
            admin.shutdown();
        }
    }

    /** With the keys of tools.yml, as the tool takes them; what it printed. */
    private static String mqadmin(String[] words) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream sink = new PrintStream(printed, true);
        PrintStream errors = System.err;
        System.setOut(sink);
        System.setErr(sink);
        try {
            MQAdminStartup.main(words);
        } finally {
            System.setOut(STDOUT);
            System.setErr(errors);
        }
        return printed.toString();
    }
}
