import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages with timers by RocketMQ 5.x's client, recalls one of them, and receives the others.
 * Arguments: name server, topic.
 *
 * Prints a line `BODY MS` for each message that came: its store time minus the time it was due. Exits
 * with 0 when all came, and the recalled one did not.
 */
public final class Timer5 {
    private static final long LATER_MS = 2000;

    public static void main(String[] args) throws Exception {
        Map<String, Long> due = new ConcurrentHashMap<>();
        Map<String, Long> came = new ConcurrentHashMap<>();
        DefaultMQProducer producer = new DefaultMQProducer("timer5");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        producer.send(message(args[1], "plain"));

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("timer5-consumer");
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                came.put(new String(each.getBody(), StandardCharsets.UTF_8), each.getStoreTimestamp());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        Message seconds = message(args[1], "seconds");
        seconds.setDelayTimeSec(LATER_MS / 1000);
        Message millis = message(args[1], "millis");
        millis.setDelayTimeMs(LATER_MS);
        Message time = message(args[1], "time");
        time.setDeliverTimeMs(System.currentTimeMillis() + LATER_MS);
        Message recalled = message(args[1], "recalled");
        recalled.setDelayTimeMs(LATER_MS);
        String handle = null;
        for (Message each : new Message[] {seconds, millis, time, recalled}) {
            due.put(new String(each.getBody(), StandardCharsets.UTF_8), System.currentTimeMillis() + LATER_MS);
            SendResult result = producer.send(each);
            handle = result.getRecallHandle();
            must(handle != null, "no recall handle");
        }
        due.put("time", time.getDeliverTimeMs());
        String id = producer.recallMessage(args[1], handle);
        must(id.equals(recalled.getProperty("UNIQ_KEY")), "recalled " + id);

        long until = System.currentTimeMillis() + 60_000;
        while (came.size() < 4 && System.currentTimeMillis() < until) {
            Thread.sleep(50);
        }
        Thread.sleep(500);
        must(came.size() == 4 && !came.containsKey("recalled"), "came: " + came.keySet());
        try {
            producer.recallMessage(args[1], handle);
        } catch (MQBrokerException error) {
            must(error.getResponseCode() == 604, "code " + error.getResponseCode());
        }
        for (String body : new String[] {"seconds", "millis", "time"}) {
            System.out.println(body + " " + (came.get(body) - due.get(body)));
        }
        producer.shutdown();
        consumer.shutdown();
        System.exit(0);
    }

    private static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    private static void must(boolean isSo, String otherwise) {
        if (!isSo) {
            System.out.println(otherwise);
            System.exit(1);
        }
    }
}
