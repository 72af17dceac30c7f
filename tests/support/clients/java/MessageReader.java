// Reads messages as Apache Kafka's own classes do. A line of input is `class version hex`; its answer says what Kafka
// writes when it writes the message again, and what it makes of it as JSON.

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

public class MessageReader {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split(" ", 3);
            short version = Short.parseShort(fields[1]);
            ByteBuffer raw = ByteBuffer.wrap(HexFormat.of().parseHex(fields[2]));
            Class<?> type = Class.forName(fields[0]);
            Message message = (Message) type.getDeclaredConstructor().newInstance();
            message.read(new ByteBufferAccessor(raw), version);
            if (raw.hasRemaining()) {
                throw new IllegalStateException(line + ": " + raw.remaining() + " bytes are left over");
            }
            ByteBuffer again = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] written = new byte[again.remaining()];
            again.get(written);
            JsonNode json = (JsonNode) Class.forName(type.getName() + "JsonConverter")
                .getMethod("write", type, short.class).invoke(null, message, version);
            System.out.println(HexFormat.of().formatHex(written) + " " + json);
        }
    }
}
