import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends to a DLedger group until its input ends; a line for each SEND_OK: serial, queue, queue
 * offset, offset message id. Asks the name server often, so that it follows the leader.
 *
 * Arguments: name server, topic, prefix of serials, messages per second, bytes of a body.
 */
public final class GroupLoad {
    private static final int IN_FLIGHT = 64;

    public static void main(String[] args) throws Exception {
        int size = Integer.parseInt(args[4]);
        long pause = 1_000_000_000L / Integer.parseInt(args[3]);
        Map<String, Integer> failures = new TreeMap<>();
        Semaphore slots = new Semaphore(IN_FLIGHT);
        DefaultMQProducer producer = new DefaultMQProducer("p-group-load");
        producer.setNamesrvAddr(args[0]);
        producer.setPollNameServerInterval(300);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(6000);
        producer.start();
        Thread end = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException e) {
                return;
            }
        });
        end.start();
        long due = System.nanoTime();
        for (int number = 0; end.isAlive(); number++) {
            long wait = due - System.nanoTime();
            due = wait < 0 ? System.nanoTime() + pause : due + pause;
            if (wait > 0) {
                TimeUnit.NANOSECONDS.sleep(wait);
            }
            slots.acquire();
            send(producer, args[1], args[2] + "-" + number, size, slots, failures);
        }
        slots.tryAcquire(IN_FLIGHT, 20, TimeUnit.SECONDS);
        synchronized (failures) {
            System.out.println("failures " + failures);
        }
        System.out.flush();
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, String serial, int size,
            Semaphore slots, Map<String, Integer> failures) {
        StringBuilder body = new StringBuilder(serial).append(':');
        while (body.length() < size) {
            body.append(serial);
        }
        body.setLength(Math.max(size, serial.length()));
        byte[] bytes = body.toString().getBytes(StandardCharsets.US_ASCII);
        try {
            producer.send(new Message(topic, "A", serial, bytes), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        System.out.println("ok " + serial + " " + result.getMessageQueue().getQueueId()
                            + " " + result.getQueueOffset() + " " + result.getOffsetMsgId());
                    } else {
                        count(failures, result.getSendStatus().name());
                    }
                    slots.release();
                }

                @Override
                public void onException(Throwable e) {
                    count(failures, e.getClass().getSimpleName());
                    slots.release();
                }
            });
        } catch (Exception e) {
            count(failures, e.getClass().getSimpleName());
            slots.release();
        }
    }

    private static void count(Map<String, Integer> failures, String what) {
        synchronized (failures) {
            failures.merge(what, 1, Integer::sum);
        }
    }
}
