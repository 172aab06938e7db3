import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** One message whose way is traced at both ends; prints its id when it was consumed, and ends with its standard input. */
public final class Traced {
    public static void main(String[] args) throws Exception {
        CountDownLatch consumed = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("g-traced", true);
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName("traced");
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            // The topic has older messages, which a new group gets as well.
            if (messages.stream().anyMatch(message -> new String(message.getBody(), StandardCharsets.UTF_8).equals("traced"))) {
                consumed.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("p-traced", true);
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName("traced");
        producer.setSendMsgTimeout(15000);
        producer.start();
        String id = producer.send(new Message(args[1], "traced".getBytes(StandardCharsets.UTF_8))).getMsgId();
        boolean arrived = consumed.await(30, TimeUnit.SECONDS);
        System.out.println("{\"event\":\"traced\",\"id\":\"" + id + "\",\"arrived\":" + arrived + "}");
        System.in.read(); // until the traces were found, and the standard input is closed
        producer.shutdown();
        consumer.shutdown();
        System.exit(0);
    }
}
