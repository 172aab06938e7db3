import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Has a group pop a topic, as mqadmin setConsumeMode does, and consumes it by RocketMQ 5.x's client.
 * One of eight messages fails twice. Arguments: name server, broker, topic, group.
 *
 * Prints a line `BODY RECONSUME_TIMES TOPIC QUEUE` for each message that came, and the group's lag.
 */
public final class Pop5 {
    private static final int MESSAGES = 8;
    private static final String POISON = "m3";

    public static void main(String[] args) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
        DefaultMQProducer producer = new DefaultMQProducer("pop5");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        DefaultMQAdminExt tools = new DefaultMQAdminExt();
        tools.setNamesrvAddr(args[0]);
        tools.start();
        tools.createAndUpdateTopicConfig(args[1], new TopicConfig(args[2], 4, 4));
        tools.setMessageRequestMode(args[1], args[2], args[3], MessageRequestMode.POP, 0, 5000);
        for (int i = 0; i < MESSAGES; i++) {
            producer.send(new Message(args[2], ("m" + i).getBytes(StandardCharsets.UTF_8)));
        }

        List<String> came = new ArrayList<>();
        Map<String, Integer> times = new HashMap<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[3]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientRebalance(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt each = messages.get(0);
            String body = new String(each.getBody(), StandardCharsets.UTF_8);
            synchronized (came) {
                came.add(body + " " + each.getReconsumeTimes() + " " + each.getTopic() + " " + each.getQueueId());
                return times.merge(body, 1, Integer::sum) < 3 && body.equals(POISON)
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
        });
        Field levels = DefaultMQPushConsumerImpl.class.getDeclaredField("popDelayLevel");
        levels.setAccessible(true);
        Arrays.fill((int[]) levels.get(consumer.getDefaultMQPushConsumerImpl()), 1);
        consumer.start();

        long until = System.currentTimeMillis() + 60_000;
        long lag = -1;
        while (System.currentTimeMillis() < until && (size(came) < MESSAGES + 2 || lag != 0)) {
            Thread.sleep(100);
            if (size(came) >= MESSAGES + 2) {
                ConsumeStats stats = tools.examineConsumeStats(args[1], args[3], args[2], 5000);
                lag = stats.computeTotalDiff();
            }
        }
        Thread.sleep(1500);
        synchronized (came) {
            came.forEach(System.out::println);
        }
        System.out.println("lag " + lag);
        consumer.shutdown();
        producer.shutdown();
        tools.shutdown();
        System.exit(0);
    }

    private static int size(List<String> came) {
        synchronized (came) {
            return came.size();
        }
    }
}
