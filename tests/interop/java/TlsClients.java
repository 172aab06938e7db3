import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Several clients at once, each with TLS or without: sends a message and pulls it back.
 *
 * Arguments: NAMESRV, then NAME BROKER TLS(true|false) ...; what TLS means is said with the tls.client properties of the JVM.
 * Prints one JSON line for each: what came back, or why nothing did.
 */
public class TlsClients {
    public static void main(String[] args) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 1; i < args.length; i += 3) {
            String namesrv = args[0], name = args[i], broker = args[i + 1];
            boolean tls = Boolean.parseBoolean(args[i + 2]);
            Thread thread = new Thread(() -> talk(name, namesrv, broker, tls));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join(25000);
        }
        System.exit(0);
    }

    private static void talk(String name, String namesrv, String broker, boolean tls) {
        String came = "", error = "";
        try {
            DefaultMQProducer producer = new DefaultMQProducer("tls-" + name);
            producer.setInstanceName("p-" + name);
            producer.setNamesrvAddr(namesrv);
            producer.setUseTLS(tls);
            producer.setVipChannelEnabled(false);
            producer.setRetryTimesWhenSendFailed(0);
            producer.start();
            MessageQueue queue = new MessageQueue("TBW102", broker, 0);
            Message message = new Message("TBW102", name.getBytes(StandardCharsets.UTF_8));
            SendResult sent = producer.send(message, queue, 15000);
            DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("tls-" + name);
            consumer.setInstanceName("c-" + name);
            consumer.setNamesrvAddr(namesrv);
            consumer.setUseTLS(tls);
            consumer.start();
            PullResult pulled = consumer.pull(queue, "*", sent.getQueueOffset(), 1);
            came = new String(pulled.getMsgFoundList().get(0).getBody(), StandardCharsets.UTF_8);
        } catch (Throwable t) {
            error = String.valueOf(t.getMessage());
        }
        synchronized (TlsClients.class) {
            System.out.println("{\"name\": \"" + name + "\", \"came\": \"" + came + "\", \"error\": \""
                + error.replaceAll("[^A-Za-z0-9 .:<>=-]", " ") + "\"}");
        }
    }
}
