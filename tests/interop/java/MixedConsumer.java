import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Members of groups that they share with our client; told what to do on stdin, one JSON line per event on stdout.
 *
 * start NAME GROUP TOPIC [orderly]     a push consumer
 * stop NAME                            it leaves
 * owned NAME TOPIC                     which queues it has
 * quit
 */
public final class MixedConsumer {
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        System.out.println("{\"event\":\"ready\"}");
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String[] words = in.nextLine().split(" ");
            switch (words[0]) {
                case "start":
                    start(args[0], words);
                    break;
                case "stop":
                    CONSUMERS.remove(words[1]).shutdown();
                    break;
                case "owned":
                    owned(words[1], words[2]);
                    break;
                default:
                    CONSUMERS.values().forEach(DefaultMQPushConsumer::shutdown);
                    System.exit(0);
            }
            System.out.println("{\"event\":\"done\",\"command\":\"" + words[0] + "\"}");
        }
    }

    private static void start(String namesrv, String[] words) throws Exception {
        String name = words[1];
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(words[2]);
        made.setNamesrvAddr(namesrv);
        made.setInstanceName(name);
        made.setPollNameServerInterval(1000);
        made.setHeartbeatBrokerInterval(1000);
        made.setPersistConsumerOffsetInterval(500);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setConsumeThreadMin(4);
        made.setConsumeThreadMax(4);
        made.subscribe(words[3], "*");
        if (words.length > 4) {
            made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> got(name, message));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> got(name, message));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        made.start();
        CONSUMERS.put(name, made);
    }

    private static void got(String name, MessageExt message) {
        System.out.println("{\"event\":\"got\",\"by\":\"" + name + "\",\"body\":\""
            + new String(message.getBody(), StandardCharsets.UTF_8) + "\",\"queue\":" + message.getQueueId() + "}");
    }

    private static void owned(String name, String topic) {
        String queues = CONSUMERS.get(name).getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
            .entrySet().stream().filter(entry -> entry.getKey().getTopic().equals(topic) && !entry.getValue().isDropped())
            .map(entry -> String.valueOf(entry.getKey().getQueueId())).collect(Collectors.joining(","));
        System.out.println("{\"event\":\"owned\",\"by\":\"" + name + "\",\"queues\":[" + queues + "]}");
    }
}
