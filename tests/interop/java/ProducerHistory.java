import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The history of producer_history.py, with the stock client; and consumers that hear and answer ours.
 *
 * history BROKER   all of it, to the topics of that broker
 * quit
 */
public final class ProducerHistory {
    private static String namesrv;
    private static final List<DefaultMQPushConsumer> CONSUMERS = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        DefaultMQProducer plain = new DefaultMQProducer("p-java");
        plain.setNamesrvAddr(namesrv);
        plain.setSendMsgTimeout(10000);
        plain.start();
        TransactionMQProducer transactions = new TransactionMQProducer("p-java-transactions");
        transactions.setNamesrvAddr(namesrv);
        transactions.setSendMsgTimeout(10000);
        transactions.setInstanceName("transactions");
        transactions.setHeartbeatBrokerInterval(1000);
        transactions.setTransactionListener(new Decisions());
        transactions.start();
        for (String broker : Arrays.copyOfRange(args, 1, args.length)) {
            subscribe("ours", "g-" + broker, "H-ours-" + broker, "X-ours-" + broker);
            replier(plain, broker);
        }
        System.out.println("{\"event\":\"ready\"}");
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String[] words = in.nextLine().split(" ");
            if (words[0].equals("quit")) {
                break;
            }
            history(plain, words[1]);
            decide(transactions, words[1]);
            System.out.println("{\"event\":\"done\",\"command\":\"history\"}");
        }
        CONSUMERS.forEach(DefaultMQPushConsumer::shutdown);
        plain.shutdown();
        transactions.shutdown();
        System.exit(0);
    }

    private static void history(DefaultMQProducer producer, String broker) throws Exception {
        String topic = "H-java-" + broker;
        MessageQueue first = new MessageQueue(topic, broker, 0);
        Message rich = new Message(topic, "tag", "k1 k2", 7, bytes("rich"), true);
        for (int i = 0; i < 15; i++) {
            rich.putUserProperty("name-" + i, "v" + i);
        }
        rich.putUserProperty("umlaut", "\u00e4\u20ac \"q\" \\ / %s");
        producer.send(rich, first);
        producer.send(new Message(topic, "", "", -1, bytes("plain"), false), first);
        StringBuilder large = new StringBuilder();
        for (int i = 0; i < 3000; i++) {
            large.append("number ").append(i).append(", ");
        }
        producer.send(new Message(topic, "large", bytes(large.toString())), first);
        producer.send(new Message(topic, bytes(large.substring(0, 4095))), first);
        producer.send(new Message(topic, bytes(large.substring(0, 4096))), first);
        for (Object key : new Object[] {"order-1", "order-2", "h\u00e4h", "", 7, -7, 1L << 40, -(1L << 33)}) {
            producer.send(new Message(topic, "hash", bytes("key " + key)), new SelectMessageQueueByHash(), key);
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            Message item = new Message(topic, "tag" + i, "key" + i, i, bytes("batch " + i), true);
            item.putUserProperty("n", "" + i);
            batch.add(item);
        }
        producer.send(batch, new MessageQueue(topic, broker, 1));
        producer.sendOneway(new Message(topic, "oneway", bytes("oneway")), new MessageQueue(topic, broker, 2));
        Message delayed = new Message(topic, "delayed", bytes("delayed"));
        delayed.setDelayTimeLevel(1);
        producer.send(delayed, new MessageQueue(topic, broker, 3));
        StringBuilder turns = new StringBuilder();
        for (int i = 0; i < 8; i++) {
            SendResult result = producer.send(new Message(topic, "turn", bytes("turn")));
            turns.append(turns.length() > 0 ? "," : "").append(result.getMessageQueue().getQueueId());
        }
        System.out.println("{\"event\":\"turns\",\"by\":\"" + broker + "\",\"body\":\"" + turns + "\"}");
    }

    private static void decide(TransactionMQProducer producer, String broker) throws Exception {
        for (String decision : new String[] {"commit", "rollback", "ask-commit", "ask-rollback"}) {
            Message item = new Message("X-java-" + broker, "t", decision, bytes(decision));
            producer.sendMessageInTransaction(item, decision);
        }
    }

    private static final class Decisions implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object decision) {
            return decision.equals("commit") ? LocalTransactionState.COMMIT_MESSAGE
                : decision.equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE
                : LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return message.getKeys().equals("ask-commit") ? LocalTransactionState.COMMIT_MESSAGE
                : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    private static DefaultMQPushConsumer consumer(String group, String... topics) throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
        made.setNamesrvAddr(namesrv);
        made.setInstanceName(group);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setConsumeThreadMin(1);
        made.setConsumeThreadMax(2);
        made.setHeartbeatBrokerInterval(1000);
        for (String topic : topics) {
            made.subscribe(topic, "*");
        }
        CONSUMERS.add(made);
        return made;
    }

    private static void subscribe(String name, String group, String... topics) throws Exception {
        DefaultMQPushConsumer made = consumer(group, topics);
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                System.out.println("{\"event\":\"got\",\"by\":\"" + message.getTopic() + "\",\"body\":\""
                    + (body.length() > 100 ? body.length() + " characters" : body) + "\",\"id\":\"" + message.getMsgId()
                    + "\",\"tags\":\"" + message.getTags() + "\"}");
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        made.start();
    }

    private static void replier(DefaultMQProducer producer, String broker) throws Exception {
        DefaultMQPushConsumer made = consumer("g-replier-" + broker, "R-" + broker);
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = bytes("re: " + new String(message.getBody(), StandardCharsets.UTF_8));
                    producer.send(MessageUtil.createReplyMessage(message, body), 5000);
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        made.start();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
