import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * What applications do with RocketMQ 5.x's remoting client, once each. Arguments: name server, topic.
 *
 * Exits with 0 when all of it worked; else the last line says what did not.
 */
public final class Client5 {
    private static String namesrv;
    private static String topic;

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        topic = args[1];
        // Two of a batch, the one that failed again, a plain one, a transaction.
        CountDownLatch consumed = new CountDownLatch(5);
        CountDownLatch ordered = new CountDownLatch(4);
        CountDownLatch chosen = new CountDownLatch(1);
        CountDownLatch checked = new CountDownLatch(1);
        Set<String> failed = ConcurrentHashMap.newKeySet();

        TransactionMQProducer producer = new TransactionMQProducer("p5");
        producer.setNamesrvAddr(namesrv);
        producer.setHeartbeatBrokerInterval(500);
        producer.setSendMsgTimeout(15000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                return "asked".equals(arg) ? LocalTransactionState.UNKNOW : LocalTransactionState.ROLLBACK_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        Message keyed = message("plain");
        keyed.setKeys("key-5");
        keyed.putUserProperty("n", "3");
        SendResult first = sent(producer, keyed);

        // The topic is there by now, so that the start of the one with SQL has a broker compile it.
        DefaultMQPushConsumer concurrent = consumer("g5-concurrent", MessageSelector.byTag("*"));
        concurrent.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if ("again".equals(text(message)) && failed.add(message.getMsgId())) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                consumed.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        concurrent.start();
        DefaultMQPushConsumer orderly = consumer("g5-orderly", MessageSelector.byTag("*"));
        orderly.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> ordered.countDown());
            return ConsumeOrderlyStatus.SUCCESS;
        });
        orderly.start();
        DefaultMQPushConsumer sql = consumer("g5-sql", MessageSelector.bySql("n > 2"));
        sql.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> chosen.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        sql.start();

        producer.send(new ArrayList<>(List.of(message("one"), message("two"))));
        producer.send(message("again"));
        producer.sendMessageInTransaction(message("refused"), "refused");
        producer.sendMessageInTransaction(message("asked"), "asked");
        wait(consumed, "a concurrent consumer");
        wait(ordered, "an orderly consumer");
        wait(chosen, "a consumer with SQL");
        wait(checked, "a check of a transaction");
        long end = producer.maxOffset(first.getMessageQueue());
        if (producer.minOffset(first.getMessageQueue()) != 0 || end < 1) {
            fail("offsets: the end is " + end);
        }
        if (producer.queryMessage(topic, "key-5", 8, 0, Long.MAX_VALUE).getMessageList().size() != 1) {
            fail("a look for a key");
        }
        sql.shutdown();
        orderly.shutdown();
        concurrent.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    /** A machine with much else to do may lose a first connection. */
    private static SendResult sent(DefaultMQProducer producer, Message message) throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                return producer.send(message);
            } catch (MQClientException | RemotingException error) {
                if (attempt == 20) {
                    throw error;
                }
                Thread.sleep(500);
            }
        }
    }

    private static DefaultMQPushConsumer consumer(String group, MessageSelector selector) throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
        made.setNamesrvAddr(namesrv);
        made.setHeartbeatBrokerInterval(500);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.subscribe(topic, selector);
        return made;
    }

    private static Message message(String body) {
        return new Message(topic, "A", body.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static void wait(CountDownLatch latch, String what) throws InterruptedException {
        if (!latch.await(60, TimeUnit.SECONDS)) {
            fail(what + ": " + latch.getCount() + " missing after 60 s");
        }
    }

    private static void fail(String what) {
        System.out.println(what);
        System.exit(1);
    }
}
