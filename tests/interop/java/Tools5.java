import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** 5.3.3's mqadmin: one command a line of input, its words between tabs; a line DONE after each. */
public class Tools5 {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            MQAdminStartup.main0(line.split("\t"), null);
            System.out.println("\nDONE");
            System.out.flush();
        }
    }
}
