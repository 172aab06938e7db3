import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends a message, a delayed one and a batch, each of them twice, as a retry would: with the same ids. */
public final class SentTwice {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("p-twice");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(10000);
        producer.start();
        Message one = message("one");
        Message delayed = message("delayed");
        delayed.setDelayTimeLevel(1);
        List<Message> batch = Arrays.asList(message("a"), message("b"), message("c"));
        for (int turn = 0; turn < 2; turn++) {
            tell("one", producer.send(one));
            tell("delayed", producer.send(delayed));
            tell("batch", producer.send(batch));
        }
        producer.shutdown();
        System.exit(0);
    }

    private static Message message(String body) {
        return new Message("Twice", "tag", "key " + body, body.getBytes(StandardCharsets.UTF_8));
    }

    private static void tell(String what, SendResult result) {
        System.out.println(
            "{\"what\":\"" + what + "\",\"status\":\"" + result.getSendStatus()
                + "\",\"id\":\"" + result.getMsgId() + "\",\"place\":\"" + result.getOffsetMsgId()
                + "\",\"queue\":" + result.getMessageQueue().getQueueId()
                + ",\"offset\":" + result.getQueueOffset() + "}");
    }
}
