import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs one of Kafka's tools after the other in one JVM, because the start of a JVM takes longer than most of them.
 *
 * <p>Each line of stdin is a command: the class, what its stdin holds, and its arguments, each in Base64, with spaces
 * between. Each is answered by a line: exit status, what it wrote to stdout, what it wrote to stderr.
 */
public final class ToolRunner {
    /** Thrown in place of the end of the JVM. No tool catches it, or it is counted all the same. */
    private static final class ExitError extends Error {
        private static final long serialVersionUID = 1L;

        ExitError() {
            super("the tool has ended", null, false, false);
        }
    }

    private static Integer firstStatus;
    private static final List<Runnable> hooks = new ArrayList<>();

    private ToolRunner() {}

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        Exit.setExitProcedure(ToolRunner::exit);
        Exit.setHaltProcedure(ToolRunner::exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        PrintStream ownErrors = System.err;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] fields = line.split(" ");
            String[] arguments = new String[fields.length - 2];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = new String(decoded(fields[i + 2]), "UTF-8");
            }
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(decoded(fields[1])));
            System.setOut(new PrintStream(out, true, "UTF-8"));
            System.setErr(new PrintStream(err, true, "UTF-8"));
            int status = run(new String(decoded(fields[0]), "UTF-8"), arguments);
            System.out.flush();
            System.err.flush();
            System.setErr(ownErrors);
            answers.println(status + " " + encoded(out) + " " + encoded(err));
        }
    }

    private static int run(String tool, String[] arguments) {
        firstStatus = null;
        hooks.clear();
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof ExitError)) {
                raised.getCause().printStackTrace();
                firstStatus = firstStatus == null ? Integer.valueOf(1) : firstStatus;
            }
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            firstStatus = 127;
        }
        // What the tool leaves to be done when its JVM ends. One may wait for another: none may hold us up.
        for (Runnable hook : hooks) {
            Thread thread = new Thread(hook);
            thread.setDaemon(true);
            thread.start();
        }
        return firstStatus == null ? 0 : firstStatus;
    }

    private static void exit(int status, String message) {
        if (message != null) {
            System.err.println(message);
        }
        if (firstStatus == null) {
            firstStatus = status;
        }
        throw new ExitError();
    }

    private static byte[] decoded(String field) {
        return Base64.getDecoder().decode(field.equals("-") ? "" : field);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return bytes.size() == 0 ? "-" : Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
