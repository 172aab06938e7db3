import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer that sends every 10 ms and a push consumer, until it is killed. Of the 4.9.7 or the
 * 5.3.3 client, by the class path. Lines: SENT began ended | FAIL began ended what | GOT born now.
 *
 * <p>Arguments: name servers, topic, and ms between looks at routes (0: as the client likes).
 */
public class Failover {
    public static void main(String[] args) throws Exception {
        int poll = Integer.parseInt(args[2]);
        DefaultMQProducer producer = new DefaultMQProducer("p-" + args[1]);
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName("producer");
        if (poll > 0) {
            producer.setPollNameServerInterval(poll);
        }
        producer.start();
        while (!send(producer, args[1])) {
            Thread.sleep(200);
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("g-" + args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName("consumer");
        if (poll > 0) {
            consumer.setPollNameServerInterval(poll);
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.currentTimeMillis();
            messages.forEach(each -> say("GOT " + each.getBornTimestamp() + " " + now));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        while (true) {
            send(producer, args[1]);
            Thread.sleep(10);
        }
    }

    private static boolean send(DefaultMQProducer producer, String topic) {
        long began = System.currentTimeMillis();
        String what;
        try {
            SendResult result = producer.send(new Message(topic, "x".getBytes(StandardCharsets.UTF_8)));
            if (result.getSendStatus() == SendStatus.SEND_OK) {
                say("SENT " + began + " " + System.currentTimeMillis());
                return true;
            }
            what = result.getSendStatus().name();
        } catch (Exception error) {
            what = error.getClass().getSimpleName();
        }
        say("FAIL " + began + " " + System.currentTimeMillis() + " " + what);
        return false;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
